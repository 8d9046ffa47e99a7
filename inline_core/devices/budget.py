"""How many bytes a machine offers and how many the work needs: pure arithmetic, no hardware asked.

All figures are bytes unless a name says values (numbers of a tensor, of any precision).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from inline_core.devices.placement import BYTES_PER_VALUE, DeviceKind, Dtype, Quantization

Profile = Literal["gpu-max", "lowvram", "cpu"]

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
# What the driver and the kernels of the libraries take before the first weight is there.
CONTEXT_BYTES: Final[Mapping[DeviceKind, int]] = MappingProxyType(
    {"cuda": 600 * MIB, "mps": 400 * MIB, "cpu": 600 * MIB}
)
SMALLEST_HEADROOM: Final = 512 * MIB
LOW_VRAM_BYTES: Final = 12 * GIB


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device torch can see; `index` is torch's own, after any mask.

    `free_bytes` is what was free when the server started; `compute` is the compute capability.
    """

    index: int
    name: str
    total_bytes: int
    free_bytes: int
    compute: tuple[int, int] = (8, 0)
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware a plan is made for; `ram_bytes` respects the limit of a container.

    `bf16` says that the processor has units for bfloat16.
    """

    kind: DeviceKind
    name: str
    ram_bytes: int
    gpus: tuple[Gpu, ...] = ()
    bf16: bool = False
    torch_build: str | None = None
    reason: str = ""

    @property
    def gpu(self) -> Gpu | None:
        """The GPU that one picture is made on: the one with the most memory."""
        return max(self.gpus, key=lambda gpu: gpu.total_bytes, default=None)

    @property
    def device(self) -> str:
        """Its name for torch."""
        gpu = self.gpu
        return f"cuda:{gpu.index}" if self.kind == "cuda" and gpu else self.kind


@dataclass(frozen=True, slots=True)
class Weights:
    """What the header of one component says about its size.

    `linear_values` of the `values` are weights of linears in repeated blocks, which int8 halves;
    `linear_rows` are their output rows, each with one float32 scale.  `largest_block` is the
    biggest of the repeated blocks, `outside` what belongs to none.  `packed_bytes` is the size of
    a pre-quantized file's weights, 0 for plain files.
    """

    values: int
    linear_values: int = 0
    linear_rows: int = 0
    largest_block: int = 0
    outside: int = 0
    file_dtype: str = "BF16"
    file_bytes: int = 0
    packed_bytes: int = 0

    def bytes_at(self, dtype: Dtype, quantization: Quantization = "none") -> int:
        """Size of the weights when they are held so."""
        width = BYTES_PER_VALUE[dtype]
        if quantization == "packed":
            return self.packed_bytes
        if quantization == "int8":
            plain = self.values - self.linear_values
            return self.linear_values + 4 * self.linear_rows + width * plain
        return width * self.values

    def plus(self, other: Weights) -> Weights:
        """Both together, as one component; streamed block by block like one."""
        return replace(
            self,
            values=self.values + other.values,
            linear_values=self.linear_values + other.linear_values,
            linear_rows=self.linear_rows + other.linear_rows,
            largest_block=max(self.largest_block, other.largest_block),
            outside=self.outside + other.outside,
            file_bytes=self.file_bytes + other.file_bytes,
            packed_bytes=self.packed_bytes + other.packed_bytes,
        )

    def streamed_bytes(self, dtype: Dtype, quantization: Quantization) -> int:
        """What is on the device at once when blocks are streamed: two of them and the rest."""
        whole = self.bytes_at(dtype, quantization)
        if self.values == 0 or self.largest_block == 0:
            return whole
        # Blocks take their share of the bytes; what is outside of them is never quantized.
        outside = BYTES_PER_VALUE[dtype] * self.outside
        in_blocks = max(whole - outside, 0)
        share = self.largest_block / max(self.values - self.outside, 1)
        return min(whole, outside + int(2 * share * in_blocks))


@dataclass(frozen=True, slots=True)
class Workload:
    """Values that the work needs beside the weights, at its largest moment in each phase."""

    encode_values: int = 0
    denoise_values: int = 0
    decode_values: int = 0
    tiled_decode_values: int = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """One picture (or one forward pass of several): its components and its work."""

    model: Weights
    text_encoder: Weights | None = None
    vae: Weights | None = None
    work: Workload = Workload()


def headroom_bytes(total: int, profile: Profile) -> int:
    """What is left to others: 5 % of the device (10 % with `lowvram`), at least 512 MiB."""
    return max(SMALLEST_HEADROOM, total // (10 if profile == "lowvram" else 20))


def capacity_bytes(machine: Machine, profile: Profile, budget_bytes: int | None = None) -> int:
    """What models and their work may take on the device.

    On a GPU never more than was free at the start; on Apple's shared memory three quarters of it
    (what Metal recommends); on the processor the memory of the machine or its container.
    """
    gpu = machine.gpu
    if machine.kind == "cuda" and gpu is not None:
        offered = min(gpu.total_bytes - headroom_bytes(gpu.total_bytes, profile), gpu.free_bytes)
    elif machine.kind == "mps":
        shared = machine.ram_bytes * 3 // 4
        offered = shared - headroom_bytes(shared, profile)
    else:
        offered = machine.ram_bytes - headroom_bytes(machine.ram_bytes, profile)
    if budget_bytes is not None:
        offered = min(offered, budget_bytes)
    return max(offered - CONTEXT_BYTES[machine.kind], 0)


def host_capacity_bytes(machine: Machine) -> int:
    """Host memory that streamed weights may take; none where device and host are the same."""
    if machine.kind != "cuda":
        return 0
    ram = machine.ram_bytes
    return max(ram - headroom_bytes(ram, "gpu-max") - CONTEXT_BYTES["cpu"] - GIB, 0)
