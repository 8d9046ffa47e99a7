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

    def before(self, latents: Tensor, sigma: float) -> Tensor:
        """The latents to be estimated at `sigma`."""
        kept = noised(self.clean, self.noise, sigma, flow=self.flow)
        return latents * self.share + kept * (1.0 - self.share)

    def after(self, denoised: Tensor) -> Tensor:
        """The estimate with the kept part put back."""
        return denoised * self.share + self.clean * (1.0 - self.share)


def latent_mask(mask: NDArray[np.uint8], like: Tensor) -> Tensor:
    """A mask uint8 (height, width) in pixels -> float32 0..1 in the size of latents `like`."""
    values = torch.from_numpy(mask).to(torch.float32)[None, None] / 255.0  # (1, 1, height, width)
    small = functional.interpolate(values, size=like.shape[-2:], mode="bilinear")
    while small.ndim < like.ndim:
        small = small.unsqueeze(2)  # (1, 1, 1, h, w)
    return small.to(like.device)
