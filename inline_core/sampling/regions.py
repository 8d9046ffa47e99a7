"""Prompts that are combined: what each is asked for, and how their estimates become one.

As ComfyUI combines conditionings: each estimate counts with its strength, where its area or its
mask is, and what is made is the weighted mean.  An area is made as a picture of its own; its edges
inside of the picture fade over `FADE` latents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from inline_core.sampling.masking import latent_mask

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.sampling.family import PromptPart
    from inline_core.sampling.sigmas.tables import SigmaTable
    from inline_core.sampling.values import Region

FADE: Final = 8
_NONE: Final = 1e-37


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of latents."""

    left: int
    top: int
    width: int
    height: int

    def of(self, latents: Tensor) -> Tensor:
        """That part of latents (..., height, width)."""
        rows = slice(self.top, self.top + self.height)
        return latents[..., rows, self.left : self.left + self.width]


def box_of(region: Region, like: Tensor, factor: int) -> Box | None:
    """The area of a region in latents `like` (..., height, width); None: all of them."""
    if region.area is None:
        return None
    height, width = like.shape[-2:]
    x, y, wide, high = region.area
    if region.shares:
        left, top = round(x * width), round(y * height)
        wide, high = max(1, round(wide * width)), max(1, round(high * height))
    else:
        left, top = int(x) // factor, int(y) // factor
        wide, high = int(wide) // factor, int(high) // factor
    left, top = min(max(left, 0), width - 1), min(max(top, 0), height - 1)
    size = max(1, min(int(wide), width - left)), max(1, min(int(high), height - top))
    return Box(left, top, *size)


def counts_at(region: Region, sigma: float, table: SigmaTable) -> bool:
    """Whether a region counts at `sigma`."""
    upper, lower = table.sigma_at(region.start_percent), table.sigma_at(region.end_percent)
    return lower < sigma <= upper and region.strength != 0


def weight_of(region: Region, box: Box | None, like: Tensor) -> Tensor:
    """How much the estimate of a region counts, (1, 1, ..., height, width) of its box."""
    whole = like if box is None else box.of(like)
    weight = torch.full_like(whole[:1, :1], region.strength)  # (1, 1, ..., h, w)
    if region.mask is not None:
        mask = latent_mask(region.mask, like)  # (1, 1, ..., height, width)
        weight = weight * (mask if box is None else box.of(mask))
    elif box is not None:
        weight = weight * _faded(box, like)
    return weight


def _faded(box: Box, like: Tensor) -> Tensor:
    """1 in the middle of a box (h, w), and less towards its edges inside of the picture."""
    height, width = like.shape[-2:]
    ramps = []
    for start, size, whole in ((box.top, box.height, height), (box.left, box.width, width)):
        ramp = torch.ones(size, device=like.device)  # (size,)
        for place in range(min(FADE, size)):
            share = (place + 1) / FADE
            if start > 0:
                ramp[place] *= share
            if start + size < whole:
                ramp[size - 1 - place] *= share
        ramps.append(ramp)
    return ramps[0][:, None] * ramps[1]  # (h, w)


def combined(
    parts: Sequence[PromptPart], estimates: Mapping[int, Tensor], like: Tensor, factor: int
) -> Tensor:
    """The weighted mean of the estimates of those parts that counted, shaped as `like`.

    Where none counts it is 0.
    """
    total = torch.zeros_like(like)
    weights = torch.full_like(like[:1, :1], _NONE)  # (1, 1, ..., height, width)
    for index, estimate in estimates.items():
        region = parts[index].region
        box = box_of(region, like, factor)
        weight = weight_of(region, box, like)
        (total if box is None else box.of(total)).add_(estimate * weight)
        (weights if box is None else box.of(weights)).add_(weight)
    return total / weights
