"""Enlarge pictures with leased upscalers.  Lives on the device's threads; imports torch late."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from inline_core.errors import InvalidParam
from inline_core.families.leasing import Leasing
from inline_core.loading.component import ComponentRef
from inline_core.loading.pool import Lease
from inline_core.media.limits import too_large

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_RUNTIME: Final = "inline_core.families.upscalers.runtime"

Check = Callable[[], None]
Report = Callable[[int, int], None]


class Upscalers:
    """Enlarges pictures; an upscaler goes where a VAE of its size would."""

    def __init__(self, leasing: Leasing) -> None:
        self._leasing = leasing

    def upscale(
        self,
        upscaler: ComponentRef,
        pixels: NDArray[np.uint8],
        check: Check,
        *,
        tile: int,
        overlap: int,
        report: Report,
    ) -> NDArray[np.uint8]:
        """Pixels (height, width, 3) uint8, enlarged by what the upscaler was made for.

        Sides above `tile` are done in tiles; `report(done, count)` is called after each.
        Raises: InvalidParam for a result that would be too large, ModelFileInvalid/Missing,
        NotFinite, OutOfMemory, RuntimeMissing, RunCancelled.
        """

        def told(done: int, count: int) -> None:
            check()
            report(done, count)

        height, width = pixels.shape[:2]
        with self._lease(upscaler, check) as runtime, runtime.interruption.asking(check):
            problem = too_large((width * runtime.scale, height * runtime.scale))
            if problem is not None:
                message = f"{upscaler.name} makes it {runtime.scale} times as large: {problem}"
                raise InvalidParam(message, port="image")
            large: NDArray[np.uint8] = runtime.upscale(
                pixels, tile=tile, overlap=overlap, report=told
            )
        return large

    def _lease(self, upscaler: ComponentRef, check: Check) -> Lease[Any]:
        weights = self._leasing.opened.open(upscaler).weights
        # They are small, and half precision shows as bands in smooth parts.
        placement = replace(self._leasing.policy.place_vae(weights), dtype="float32")
        plan = self._leasing.plan(upscaler, placement, check)
        runtime = importlib.import_module(_RUNTIME)
        return self._leasing.lease(upscaler, plan, runtime.load_upscaler)
