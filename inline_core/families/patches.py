"""Latents to tokens of 2 x 2 patches and back, as FLUX.1, Qwen-Image and Krea 2 pack them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor


def patched(pictures: Tensor) -> Tensor:
    """(rows, channels, height, width) -> (rows, places, 4 * channels), row by row."""
    small = functional.pixel_unshuffle(pictures, 2)  # (rows, 4c, height / 2, width / 2)
    return small.flatten(2).transpose(1, 2)


def unpatched(tokens: Tensor, height: int, width: int) -> Tensor:
    """(rows, height * width, 4 * channels) -> (rows, channels, 2 * height, 2 * width)."""
    rows, _, channels = tokens.shape
    grid = tokens.transpose(1, 2).reshape(rows, channels, height, width)  # (rows, 4c, h, w)
    return functional.pixel_shuffle(grid, 2)
