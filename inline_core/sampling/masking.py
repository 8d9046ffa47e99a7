"""Inpainting: what lies outside of the mask stays what it was.

Before each estimate the kept part of the latents is the clean latent with fresh noise at the
current sigma; after it, the kept part of the estimate is the clean latent itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from inline_core.sampling.process import noised

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.sampling.sigmas.tables import SigmaTable


@dataclass(frozen=True, slots=True)
class Differing:
    """Grey says from when on a place is made anew (Levin and Fried 2023, arXiv:2306.00950).

    The threshold falls with the timestep from 1 at sigma `first` to 0 at `end`, as ComfyUI counts;
    `strength` is how much of that there is beside the grey itself.
    """

    table: SigmaTable
    first: float
    end: float
    strength: float

    def share(self, mask: Tensor, sigma: float) -> Tensor:
        """The mask at `sigma`, in its shape."""
        start, end = self.table.timestep(self.first), self.table.timestep(self.end)
        span = start - end
        threshold = (self.table.timestep(sigma) - end) / span if span else 0.0
        reached = (mask >= threshold).to(mask.dtype)
        return reached * self.strength + mask * (1.0 - self.strength)


@dataclass(frozen=True, slots=True, eq=False)
class KeptPart:
    """What a masked job keeps.

    `share` (1, 1, ..., height, width) is 1 where the picture is made anew, `clean` the latents that
    are kept and `noise` the noise they get, both (pictures, channels, ...).
    """

    share: Tensor
    clean: Tensor
    noise: Tensor
    flow: bool
    differing: Differing | None = None

    def share_at(self, sigma: float) -> Tensor:
        """How much of each place is made anew at `sigma`."""
        return self.share if self.differing is None else self.differing.share(self.share, sigma)

    def before(self, latents: Tensor, sigma: float) -> Tensor:
        """The latents to be estimated at `sigma`."""
        kept = noised(self.clean, self.noise, sigma, flow=self.flow)
        share = self.share_at(sigma)
        return latents * share + kept * (1.0 - share)

    def after(self, denoised: Tensor, sigma: float) -> Tensor:
        """The estimate at `sigma` with the kept part put back."""
        share = self.share_at(sigma)
        return denoised * share + self.clean * (1.0 - share)


def latent_mask(mask: NDArray[np.uint8], like: Tensor) -> Tensor:
    """A mask uint8 (height, width) in pixels -> float32 0..1 in the size of latents `like`."""
    values = torch.from_numpy(mask).to(torch.float32)[None, None] / 255.0  # (1, 1, height, width)
    small = functional.interpolate(values, size=like.shape[-2:], mode="bilinear")
    while small.ndim < like.ndim:
        small = small.unsqueeze(2)  # (1, 1, 1, h, w)
    return small.to(like.device)
