"""What is done to the tensors of latents.  Imports torch, so it is for the device's threads.

Latents are float32 on the CPU, (batch, channels, [frames,] height, width).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import torch
from torch.nn import functional

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

VIDEO: Final = 5
"""Axes of latents with frames."""


def resized(samples: Tensor, height: int, width: int, method: str) -> Tensor:
    """Latents in another size, in latents; frame by frame if they have some.

    `method` is one of torch's: nearest-exact, bilinear, bicubic, area.
    """
    frames = samples.shape[2] if samples.ndim == VIDEO else 0
    flat = samples
    if frames:
        flat = samples.transpose(1, 2).flatten(0, 1)  # (batch * frames, channels, h, w)
    made = functional.interpolate(flat, size=(height, width), mode=method)
    if frames:
        made = made.reshape(-1, frames, *made.shape[1:]).transpose(1, 2)
    return made.contiguous()  # (batch, channels, [frames,] height, width)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """The pictures of all, in order."""
    return torch.cat(list(parts))  # (all, channels, ...)


def picked(samples: Tensor, start: int, count: int) -> Tensor:
    """`count` pictures from number `start` on."""
    return samples[start : start + count].clone()  # (count, channels, ...)


def repeated(samples: Tensor, times: int) -> Tensor:
    """All pictures several times over."""
    return samples.repeat(times, *([1] * (samples.ndim - 1)))  # (times * batch, channels, ...)


def flipped(samples: Tensor, axis: int) -> Tensor:
    """Mirrored along an axis, counted from the end."""
    return samples.flip(axis)  # (batch, channels, ...)


def cut(samples: Tensor, axis: int, start: int, count: int) -> Tensor:
    """A part along an axis, counted from the end."""
    return samples.narrow(axis, start, count).clone()  # (batch, channels, ...)


def vace_control(
    without: Tensor, within: Tensor, shown: Tensor | None, mask: NDArray[np.uint8]
) -> Tensor:
    """What Wan VACE looks at: latents of both parts of a video, and the mask, (1, 96, t, h, w).

    `without` and `within` (1, 16, t, h, w) are those of the video with the masked part grey, and
    with the rest grey; `shown` (1, 16, pictures, h, w) are those of pictures that stand before the
    video.  `mask` (frames, H, W) is 255 where it is made anew; its 8 x 8 pixels of a latent become
    channels.  Source: WanVACEPipeline of diffusers.
    """
    both = torch.cat([without, within], dim=1)  # (1, 32, t, h, w)
    time, height, width = both.shape[2:]
    bits = torch.from_numpy(mask).to(torch.float32) / 255.0  # (frames, H, W)
    folded = bits.view(len(mask), height, -1, width, mask.shape[2] // width)
    folded = folded.permute(2, 4, 0, 1, 3).flatten(0, 1)  # (64, frames, h, w)
    small = functional.interpolate(folded[None], size=(time, height, width), mode="nearest-exact")
    if shown is not None:
        still = torch.cat([shown, torch.zeros_like(shown)], dim=1)  # (1, 32, pictures, h, w)
        both = torch.cat([still, both], dim=2)
        small = torch.cat([small.new_zeros((1, small.shape[1], *shown.shape[2:])), small], dim=2)
    return torch.cat([both, small], dim=1)  # (1, 96, t, h, w)


def of_numbers(values: NDArray[np.float32]) -> Tensor:
    """Numbers that stand beside latents, as a tensor of the same shape."""
    return torch.from_numpy(values).clone()  # as given


def put_together(parts: Sequence[Tensor], axis: int) -> Tensor:
    """All one after another along an axis."""
    return torch.cat(list(parts), dim=axis)  # (batch, channels, ...)


def slices(samples: Tensor, axis: int, size: int, count: int) -> Tensor:
    """`count` slices of `size` along an axis, as a batch: all of the first picture first."""
    cuts = [samples.narrow(axis, place * size, size) for place in range(count)]
    return torch.stack(cuts, dim=1).flatten(0, 1)  # (batch * count, channels, ...)


def replaced(samples: Tensor, source: Tensor, start: int) -> Tensor:
    """Latents whose frames from `start` on are those of another one."""
    made = samples.clone()  # (batch, channels, frames, height, width)
    made[:, :, start : start + source.shape[2]] = source
    return made
