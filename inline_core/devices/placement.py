"""Where a component lives and in what precision: the only place that names devices and dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["cuda", "mps", "cpu"]
Dtype = Literal["float32", "bfloat16", "float16"]
Offload = Literal["none"]


@dataclass(frozen=True, slots=True)
class Placement:
    """One decision of the policy; `reason` says in words why."""

    device: str
    dtype: Dtype
    offload: Offload
    reason: str

    @property
    def key(self) -> str:
        """Equal keys mean that a loaded component can be shared."""
        return f"{self.device}/{self.dtype}/{self.offload}"
