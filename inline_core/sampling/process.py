"""The two diffusion processes: how noise is mixed into clean latents, at the start and the end.

Flow models: x = (1 - sigma) x0 + sigma n.  Noise-scaled ones (eps, SD 1.5, SDXL): x = x0 + sigma n.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.sampling.sigmas.tables import SigmaTable


def noised(clean: Tensor, noise: Tensor, sigma: float, *, flow: bool) -> Tensor:
    """`clean` with noise up to `sigma`; shapes (pictures, channels, ...)."""
    return (1.0 - sigma) * clean + sigma * noise if flow else clean + sigma * noise


def start_state(
    clean: Tensor | None, noise: Tensor | None, sigma: float, table: SigmaTable
) -> Tensor:
    """What sampling starts from at `sigma`.

    `clean` None is an empty latent, `noise` None adds none.
    A noise-scaled model that starts at its largest sigma gets noise of sqrt(1 + sigma^2), as
    ComfyUI does it, so that the end of training's schedule is met.
    """
    if clean is None and noise is None:
        message = "neither latents nor noise to start from"
        raise ValueError(message)
    if not table.flow and noise is not None and sigma >= table.largest * (1 - 1e-6):
        spread = noise * math.sqrt(1.0 + sigma**2)
        return spread if clean is None else clean + spread
    if clean is None:
        assert noise is not None
        return sigma * noise
    if noise is None:
        return (1.0 - sigma) * clean if table.flow else clean
    return noised(clean, noise, sigma, flow=table.flow)


def end_state(latents: Tensor, sigma: float, table: SigmaTable) -> Tensor:
    """What sampling gives when it ends at `sigma`; leftover noise stays in, in the scale of x0."""
    if table.flow and 0.0 < sigma < 1.0:
        return latents / (1.0 - sigma)
    return latents
