"""Resize arrays: nearest-exact, bilinear, area and bicubic as torch does it, lanczos as Pillow.

The first four follow `torch.nn.functional.interpolate` without corner alignment and without
antialiasing (documentation and source of PyTorch), as these are what workflows were made with.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage

Pixels = NDArray[np.uint8]
"""A picture (height, width, 3 or 4) or a mask (height, width), 0..255."""

METHODS: Final = ("nearest-exact", "bilinear", "area", "bicubic", "lanczos")
RGB: Final = 3
RGBA: Final = 4
# Keys' parameter of the cubic kernel; torch and OpenCV use -0.75, Pillow -0.5.
_CUBIC: Final = -0.75
_CUBIC_REACH: Final = 2


def resize(pixels: Pixels, size: tuple[int, int], method: str) -> Pixels:
    """Pixels (height, width[, channels]) uint8 at another `size` (width, height).

    Four channels count as straight alpha: colours are weighted with it, so that what is
    transparent does not bleed into what is seen.
    """
    width, height = size
    if pixels.shape[:2] == (height, width):
        return pixels
    if method == "nearest-exact":
        rows = _nearest(pixels.shape[0], height)
        columns = _nearest(pixels.shape[1], width)
        return pixels[rows[:, None], columns[None, :]]
    if method == "lanczos":
        # Pillow weights the colours with alpha itself.
        picture = PillowImage.fromarray(np.ascontiguousarray(pixels))
        return np.asarray(picture.resize(size, PillowImage.Resampling.LANCZOS), np.uint8)
    values = pixels.astype(np.float32)  # (height, width[, channels])
    has_alpha = pixels.ndim == RGB and pixels.shape[2] == RGBA
    if has_alpha:
        values[..., :RGB] *= values[..., RGB:] / 255
    resized = resample(values, size, method)
    if has_alpha:
        alpha = np.maximum(resized[..., RGB:], np.float32(1e-6))
        resized[..., :RGB] *= 255 / alpha
    return as_bytes(resized)


def as_bytes(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Values of about 0..255, rounded and clipped."""
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def resample(
    values: NDArray[np.float32], size: tuple[int, int], method: str
) -> NDArray[np.float32]:
    """Values (height, width[, channels]) at another `size`, by bilinear, area or bicubic."""
    width, height = size
    one_axis = {"bilinear": _bilinear, "bicubic": _bicubic, "area": _area}[method]
    if height * values.shape[1] <= values.shape[0] * width:
        return one_axis(one_axis(values, 0, height), 1, width)
    return one_axis(one_axis(values, 1, width), 0, height)


def _nearest(old: int, new: int) -> NDArray[np.intp]:
    at = (np.arange(new) + 0.5) * (old / new)
    return np.minimum(at.astype(np.intp), old - 1)


def _weighted(
    values: NDArray[np.float32],
    axis: int,
    taps: list[tuple[NDArray[np.intp], NDArray[np.float64]]],
) -> NDArray[np.float32]:
    """The sum over taps of the values at an index, times a weight, along one axis."""
    shape = [1] * values.ndim
    shape[axis] = -1
    total: NDArray[np.float32] | None = None
    for index, weight in taps:
        part = np.take(values, index, axis)
        part *= weight.astype(np.float32).reshape(shape)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total


def _bilinear(values: NDArray[np.float32], axis: int, new: int) -> NDArray[np.float32]:
    old = values.shape[axis]
    at = np.maximum((np.arange(new) + 0.5) * (old / new) - 0.5, 0)
    low = np.minimum(at.astype(np.intp), old - 1)
    share = at - low
    return _weighted(values, axis, [(low, 1 - share), (np.minimum(low + 1, old - 1), share)])


def _bicubic(values: NDArray[np.float32], axis: int, new: int) -> NDArray[np.float32]:
    old = values.shape[axis]
    at = (np.arange(new) + 0.5) * (old / new) - 0.5
    low = np.floor(at).astype(np.intp)
    taps = []
    for offset in range(1 - _CUBIC_REACH, 1 + _CUBIC_REACH):
        index = np.clip(low + offset, 0, old - 1)
        taps.append((index, _cubic(np.abs(at - (low + offset)))))
    return _weighted(values, axis, taps)


def _cubic(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """The cubic convolution kernel (Keys 1981) at distances 0..2."""
    a, d = _CUBIC, distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, far)


def _area(values: NDArray[np.float32], axis: int, new: int) -> NDArray[np.float32]:
    """The mean of all that a new pixel touches, whole pixels only (adaptive average pooling)."""
    old = values.shape[axis]
    at = np.arange(new)
    starts = at * old // new
    ends = -(-(at + 1) * old // new)
    # Every second sum is one between two ranges, which nobody needs.  An end may be one beyond the
    # last value, which `reduceat` wants to be there.
    bounds = np.stack([starts, ends], 1).ravel()
    room = [(0, int(number == axis)) for number in range(values.ndim)]
    sums = np.add.reduceat(np.pad(values, room), bounds, axis)
    sums = sums[(slice(None),) * axis + (slice(None, None, 2),)]
    shape = [1] * values.ndim
    shape[axis] = -1
    means: NDArray[np.float32] = sums / (ends - starts).astype(np.float32).reshape(shape)
    return means
