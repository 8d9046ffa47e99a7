"""Blurring, sharpening and growing: neighbourhoods of a pixel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from inline_core.nodes.pixels.resample import RGB, RGBA, as_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Weights = NDArray[np.float32]

# Beyond this many sigmas a Gaussian is below 1 % of its peak.
REACH: Final = 3.0


def gaussian(radius: int, sigma: float) -> Weights:
    """Weights (2 * radius + 1) of a Gaussian in pixels, cut at `radius`; their sum is 1."""
    at = np.arange(-radius, radius + 1)
    weights = np.exp(-(at**2) / (2 * sigma * sigma))
    normal: Weights = (weights / weights.sum()).astype(np.float32)
    return normal


def radius_of(sigma: float) -> int:
    """How far a Gaussian reaches, in pixels."""
    return max(math.ceil(REACH * sigma), 1)


def convolve(values: Weights, weights: Weights, mode: str = "reflect") -> Weights:
    """Values (height, width[, channels]) under a separable kernel, with edges as `numpy.pad` says.

    A reach beyond the picture repeats its edge instead, as there is nothing more to mirror.
    """
    for axis in (0, 1):
        values = _along(values, weights, axis, mode)
    return values


def _along(values: Weights, weights: Weights, axis: int, mode: str) -> Weights:
    reach, length = len(weights) // 2, values.shape[axis]
    before = [(0, 0)] * values.ndim
    mirrored = min(reach, length - 1) if mode == "reflect" else reach
    before[axis] = (mirrored, mirrored)
    padded = np.pad(values, before, mode=mode)  # type: ignore[call-overload]
    if mirrored < reach:
        before[axis] = (reach - mirrored, reach - mirrored)
        padded = np.pad(padded, before, mode="edge")
    total = np.zeros_like(values)
    part = np.empty_like(values)
    for offset, weight in enumerate(weights):
        span = (slice(None),) * axis + (slice(offset, offset + length),)
        np.multiply(padded[span], weight, out=part)
        total += part
    return total


def over_colours(
    pixels: NDArray[np.uint8], change: Callable[[Weights], Weights]
) -> NDArray[np.uint8]:
    """Apply a filter to pixels (height, width[, 3 or 4]) uint8, colours weighted with alpha.

    `change` takes and gives float32 of the same shape, 0..255.
    """
    values = pixels.astype(np.float32)
    if pixels.ndim < RGB or pixels.shape[2] < RGBA:
        return as_bytes(change(values))
    values[..., :RGB] *= values[..., RGB:] / 255
    changed = np.array(change(values))
    alpha = np.clip(changed[..., RGB:], 1e-6, 255)
    changed[..., :RGB] *= 255 / alpha
    return as_bytes(changed)


def blur(pixels: NDArray[np.uint8], radius: int, sigma: float) -> NDArray[np.uint8]:
    """Gaussian blur of uint8 pixels or a mask; edges are mirrored."""
    weights = gaussian(radius, sigma)
    return over_colours(pixels, lambda values: convolve(values, weights))


def sharpen(
    pixels: NDArray[np.uint8], radius: int, sigma: float, amount: float
) -> NDArray[np.uint8]:
    """Unsharp masking: `amount` times what a blur takes away is added; alpha is kept."""
    weights = gaussian(radius, sigma)
    colours = pixels[..., :RGB].astype(np.float32)  # (height, width, 3)
    sharp = as_bytes(colours + amount * (colours - convolve(colours, weights)))
    return np.concatenate([sharp, pixels[..., RGB:]], axis=2)


def grow(values: NDArray[np.uint8], expand: int, *, tapered: bool) -> NDArray[np.uint8]:
    """The largest value of a mask within `expand` pixels (negative: the smallest).

    Distance is counted in steps to the sides, or with `tapered` off also across corners.  Edges of
    the picture neither grow nor eat.  A larger neighbourhood is made of smaller ones, so the work
    goes with the logarithm of `expand`.
    """
    if expand < 0:
        return 255 - grow(255 - values, -expand, tapered=tapered)
    # Farther than across the whole mask is nowhere.
    expand = min(expand, sum(values.shape))
    done = 0
    while done < expand:
        step = min(max(done // 2, 1), expand - done)
        if tapered:
            grown = values.copy()
            for axis in (0, 1):
                _spread(values, grown, axis, step)
        else:
            grown = values
            for axis in (0, 1):
                wider = grown.copy()
                _spread(grown, wider, axis, step)
                grown = wider
        values, done = grown, done + step
    return values


def _spread(values: NDArray[np.uint8], into: NDArray[np.uint8], axis: int, step: int) -> None:
    """Raise `into` to the values that lie `step` away along one axis, both ways."""
    if step >= values.shape[axis]:
        return
    whole = (slice(None),) * axis
    early, late = (*whole, slice(None, -step)), (*whole, slice(step, None))
    np.maximum(into[early], values[late], out=into[early])
    np.maximum(into[late], values[early], out=into[late])
