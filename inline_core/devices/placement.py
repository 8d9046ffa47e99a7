"""Where a component lives and in what precision: the only place that names devices and dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

DeviceKind = Literal["cuda", "mps", "cpu"]
Dtype = Literal["float32", "bfloat16", "float16"]
Quantization = Literal["none", "int8", "packed"]
Offload = Literal["none", "group"]
Rung = Literal["resident", "int8", "offload", "wont-fit"]

BYTES_PER_VALUE: Final[Mapping[str, int]] = MappingProxyType(
    {"float32": 4, "bfloat16": 2, "float16": 2}
)


@dataclass(frozen=True, slots=True)
class Placement:
    """One decision of the policy; `reason` says in words why.

    `dtype` is what is computed in.  `quantization` is how the weights of block linears are held:
    as they are, as int8 made while loading, or packed as they lie in a pre-quantized file.
    `offload` `group` keeps the weights in host memory and streams block after block to the device.
    `attention` names the attention backend, `parallel` the split over devices (empty: none).
    """

    device: str
    dtype: Dtype
    quantization: Quantization = "none"
    offload: Offload = "none"
    attention: str = "native"
    parallel: str = ""
    reason: str = ""

    @property
    def key(self) -> str:
        """Equal keys mean that a loaded component can be shared."""
        where = f"{self.device}/{self.dtype}/{self.quantization}/{self.offload}"
        return f"{where}/{self.attention}/{self.parallel}"

    @property
    def storage(self) -> str:
        """Where the weights are held: the device itself, or `cpu` while they are streamed."""
        return "cpu" if self.offload != "none" else self.device
