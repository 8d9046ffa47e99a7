"""The one owner of placement: which device, which precision, and how much memory may be used."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any, Final, Literal

from inline_core.devices.placement import DeviceKind, Dtype, Placement
from inline_core.devices.probe import DeviceInfo, probe, ram_free_bytes, vram_free_bytes
from inline_core.settings import MIB, Settings

Profile = Literal["gpu-max", "lowvram", "cpu"]

# Small models stay in float32 on the processor: it costs little, and then the same seed gives the
# same picture on every processor, with or without bf16 units.
SMALL_BYTES: Final = 256 * MIB
HEADROOM_BYTES: Final = 512 * MIB
LOW_VRAM_BYTES: Final = 12 * 1024 * MIB
_SUMMARY_FRESH_S: Final = 1.0


class DevicePolicy:
    """Names devices and precisions for everybody else.  Safe to use from any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._info: DeviceInfo | None = None
        self._free: tuple[float, int | None, int] | None = None

    @property
    def info(self) -> DeviceInfo:
        """The device in use; probed once."""
        with self._lock:
            if self._info is None:
                self._info = probe(allow_gpu=self._settings.profile != "cpu")
            return self._info

    @property
    def profile(self) -> Profile:
        """The memory profile; `auto` is decided by the device."""
        info = self.info
        if info.kind == "cpu":
            return "cpu"
        if self._settings.profile in {"gpu-max", "lowvram"}:
            return "lowvram" if self._settings.profile == "lowvram" else "gpu-max"
        small = info.memory_bytes is not None and info.memory_bytes < LOW_VRAM_BYTES
        return "lowvram" if small else "gpu-max"

    def confirm(self, kind: DeviceKind, reason: str) -> None:
        """Correct the probe by what torch itself found on the device thread."""
        info = self.info
        if info.kind != kind:
            with self._lock:
                self._info = replace(info, kind=kind, memory_bytes=None, reason=reason)

    def place(self, weight_bytes: int, file_dtype: str, *, precise: bool = False) -> Placement:
        """Decide for one component from its size and the dtype of its file.

        `precise` asks for float32 where that is affordable (the VAE on a processor).
        """
        info = self.info
        dtype, reason = self._dtype(info, weight_bytes, file_dtype, precise=precise)
        return Placement(info.kind, dtype, "none", reason)

    def _dtype(
        self, info: DeviceInfo, weight_bytes: int, file_dtype: str, *, precise: bool
    ) -> tuple[Dtype, str]:
        if info.kind == "cuda" or (info.kind == "mps" and not precise):
            return "bfloat16", "GPU: bfloat16"
        reasons = (
            (precise, "VAE in float32"),
            (file_dtype != "BF16", f"the file is {file_dtype or 'unknown'}, computed in float32"),
            (weight_bytes < SMALL_BYTES, "small model, computed in float32"),
            (not info.bf16, "the processor has no bfloat16 units"),
        )
        reason = next((text for applies, text in reasons if applies), None)
        if reason:
            return "float32", reason
        return "bfloat16", "the file is bfloat16 and the processor has bfloat16 units"

    def room_bytes(self) -> int:
        """Memory that a new component may take now, on the device, headroom taken off."""
        if self.info.kind != "cuda":
            return max(ram_free_bytes() - HEADROOM_BYTES, 0)
        free = vram_free_bytes() or 0
        budget = self._settings.vram_budget
        if budget is not None:
            used = (self.info.memory_bytes or 0) - free
            free = min(free, budget * MIB - used)
        return max(free - HEADROOM_BYTES, 0)

    def summary(self) -> dict[str, Any]:
        """The `device` object of `/v1/health`; cheap, never imports torch."""
        info = self.info
        now = time.monotonic()
        if self._free is None or now - self._free[0] > _SUMMARY_FRESH_S:
            vram = vram_free_bytes() if info.kind == "cuda" else None
            self._free = (now, vram, ram_free_bytes())
        _, vram_free, ram_free = self._free
        total = info.memory_bytes if info.kind == "cuda" else None
        budget = self._settings.vram_budget if info.kind == "cuda" else None
        return {
            "kind": info.kind,
            "profile": self.profile,
            "vramBudgetMb": budget or (total // MIB if total else None),
            "vramFreeMb": vram_free // MIB if vram_free is not None else None,
            "ramFreeMb": ram_free // MIB,
            "name": info.name,
            "torchBuild": info.torch_build,
            "reason": info.reason,
        }


def device_summary(settings: Settings) -> dict[str, Any]:
    """One-off `device` object of `/v1/health`, where no render exists to ask."""
    return DevicePolicy(settings).summary()
