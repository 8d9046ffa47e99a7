"""Edges: Sobel gradients and the Canny detector (Canny 1986)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from inline_core.nodes.pixels.filters import convolve, gaussian
from inline_core.nodes.pixels.resample import RGB

if TYPE_CHECKING:
    from numpy.typing import NDArray

# ITU-R BT.601, as edge detectors have it.
GREY: Final = np.array([0.299, 0.587, 0.114], np.float32)
_STEPS: Final = ((0, 1), (1, 1), (1, 0), (1, -1))
"""Neighbours (down, right) at 0, 45, 90 and 135 degrees, y downwards."""

_EPSILON: Final = 1e-6


def grey_of(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Luma (height, width) in 0..1 of pixels (height, width, 3 or 4)."""
    grey: NDArray[np.float32] = pixels[..., :RGB].astype(np.float32) @ GREY / np.float32(255)
    return grey


def gradients(grey: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Sobel differences to the right and downwards, each up to 4 for values in 0..1."""
    padded = np.pad(grey, 1, mode="edge")
    down = padded[:-2] + 2 * padded[1:-1] + padded[2:]  # (height, width + 2), smoothed
    across = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]  # (height + 2, width)
    return down[:, 2:] - down[:, :-2], across[2:] - across[:-2]


def canny(pixels: NDArray[np.uint8], low: float, high: float) -> NDArray[np.bool_]:
    """Edges (height, width): thinned, above `low` and joined to something above `high`.

    Gaussian of 5x5 with sigma 1, Sobel, four directions, hysteresis over eight neighbours.  The
    thresholds are in units of the gradient's length, for brightness in 0..1.
    """
    blurred = convolve(grey_of(pixels), gaussian(2, 1.0))
    right, down = gradients(blurred)
    length = np.sqrt(right * right + down * down + np.float32(_EPSILON))  # (height, width)
    thin = _thinned(length, right, down)
    weak = thin & (length > low)
    return _joined(weak, thin & (length > high))


def _thinned(
    length: NDArray[np.float32], right: NDArray[np.float32], down: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Pixels that are longer than their neighbours along the gradient."""
    height, width = length.shape
    padded = np.pad(length, 1)
    flat, steep = np.abs(right) * math.tan(math.pi / 8), np.abs(down) * math.tan(math.pi / 8)
    lying, standing = np.abs(down) <= flat, np.abs(right) < steep
    rising = (right * down) > 0
    slanted = ~(lying | standing)
    along = (lying, slanted & rising, standing, slanted & ~rising)
    thin = np.zeros(length.shape, np.bool_)
    for (dy, dx), here in zip(_STEPS, along, strict=True):
        ahead = padded[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]
        behind = padded[1 - dy : 1 - dy + height, 1 - dx : 1 - dx + width]
        # Of two equal ones, as beside a clean step, the first counts.
        thin |= here & (length > ahead) & (length >= behind)
    return thin


def _joined(weak: NDArray[np.bool_], strong: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Connected parts of `weak` that hold a pixel of `strong`."""
    height, width = weak.shape
    number = np.full((height + 2, width + 2), -1, np.int64)
    inner = number[1:-1, 1:-1]
    count = int(weak.sum())
    inner[weak] = np.arange(count)
    pairs = []
    for dy, dx in _STEPS:
        other = number[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]
        both = weak & (other >= 0)
        pairs.append((inner[both], other[both]))
    first, second = (np.concatenate(side) for side in zip(*pairs, strict=True))
    root = _roots(count, first, second)
    holds = np.zeros(count, np.bool_)
    holds[root[inner[strong & weak]]] = True
    kept = np.zeros(weak.shape, np.bool_)
    kept[weak] = holds[root]
    return kept


def _roots(count: int, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """The smallest number in the connected part of each of `count` points.

    Roots hook onto smaller roots beside them, then all pointers are shortened (Shiloach and
    Vishkin 1982): a few rounds, however long a part is.
    """
    root = np.arange(count)
    while True:
        one, two = root[first], root[second]
        apart = one != two
        if not apart.any():
            return root
        first, second, one, two = first[apart], second[apart], one[apart], two[apart]
        np.minimum.at(root, np.maximum(one, two), np.minimum(one, two))
        while True:
            shorter = root[root]
            if np.array_equal(shorter, root):
                break
            root = shorter
