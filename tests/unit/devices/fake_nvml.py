"""A driver's library for machines with GPUs that are not here; only what the server asks it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar

from inline_core.devices.budget import GIB, Gpu

NVLINK_PAIRS = ((0, 1), (2, 3))
ALL_OF_FOUR = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))


class DriverError(Exception):
    pass


@dataclass
class FakeNvml:
    """`nvlink` and `mig` by the driver's indexes; `refuses` are functions that raise."""

    count: int
    nvlink: Collection[tuple[int, int]] = ()
    mig: Collection[int] = ()
    refuses: Collection[str] = ()
    asked: list[tuple[int, int]] = field(default_factory=list)

    NVMLError: ClassVar[type[Exception]] = DriverError
    NVML_P2P_CAPS_INDEX_NVLINK: ClassVar[int] = 2
    NVML_P2P_STATUS_OK: ClassVar[int] = 0
    NVML_DEVICE_MIG_ENABLE: ClassVar[int] = 1

    def _answer(self, name: str, value: Any) -> Any:
        if name in self.refuses:
            raise DriverError(name)
        return value

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802 - its name there
        known = {gpu.uuid: gpu.index for gpu in gpus(self.count)}
        if uuid not in known:
            raise DriverError(uuid)
        return int(self._answer("nvmlDeviceGetHandleByUUID", known[uuid]))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802 - its name there
        return int(self._answer("nvmlDeviceGetHandleByIndex", index))

    def nvmlDeviceGetP2PStatus(self, one: int, other: int, caps: int) -> int:  # noqa: N802 - its name there
        assert caps == self.NVML_P2P_CAPS_INDEX_NVLINK
        self.asked.append((one, other))
        linked = tuple(sorted((one, other))) in self.nvlink
        return int(self._answer("nvmlDeviceGetP2PStatus", 0 if linked else 5))

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:  # noqa: N802 - its name there
        return list(self._answer("nvmlDeviceGetMigMode", [int(handle in self.mig), 0]))


def gpus(count: int, name: str = "NVIDIA L40", memory_gib: int = 48) -> tuple[Gpu, ...]:
    """GPUs as the driver numbers them."""
    size = memory_gib * GIB
    return tuple(Gpu(index, name, size, size, (8, 9), f"GPU-{index}") for index in range(count))
