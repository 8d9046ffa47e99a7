"""Colours: CIELAB, matching the colours of a reference, and plain adjustments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from inline_core.nodes.pixels.resample import RGB

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Colours = NDArray[np.float32]

# IEC 61966-2-1 (sRGB), white point D65; CIE 15 for L*a*b*.
_TO_XYZ: Final = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ],
    np.float32,
)
_WHITE: Final = np.array([0.95047, 1.0, 1.08883], np.float32)
_EPSILON: Final = (6 / 29) ** 3
_SLOPE: Final = (29 / 6) ** 2 / 3
REC_709: Final = np.array([0.2126, 0.7152, 0.0722], np.float32)
_LEVELS: Final = 256


def _linear_table() -> Colours:
    unit = np.arange(_LEVELS, dtype=np.float32) / 255
    linear: Colours = np.where(unit <= 0.04045, unit / 12.92, ((unit + 0.055) / 1.055) ** 2.4)  # noqa: PLR2004
    return linear.astype(np.float32)


def lab_of(pixels: NDArray[np.uint8]) -> Colours:
    """Bytes in sRGB (..., 3) -> L*a*b* (..., 3): lightness 0..100, the others about -128..127."""
    xyz = _linear_table()[pixels] @ (_TO_XYZ / _WHITE[:, None]).T  # (..., 3)
    curved = np.where(xyz > _EPSILON, np.cbrt(xyz), _SLOPE * xyz + 4 / 29)  # (..., 3)
    x, y, z = curved[..., 0], curved[..., 1], curved[..., 2]
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)


def rgb_of(lab: Colours) -> Colours:
    """L*a*b* (..., 3) -> sRGB (..., 3) in 0..255, what is out of range clipped."""
    y = (lab[..., 0] + 16) / 116
    curved = np.stack([y + lab[..., 1] / 500, y, y - lab[..., 2] / 200], -1)  # (..., 3)
    xyz = np.where(curved > 6 / 29, curved**3, (curved - 4 / 29) / _SLOPE)  # (..., 3)
    back = np.linalg.inv(_TO_XYZ.astype(np.float64) / _WHITE[:, None]).astype(np.float32)
    linear = np.clip(xyz @ back.T, 0, 1)  # (..., 3)
    curve = 1.055 * linear ** np.float32(1 / 2.4) - 0.055
    unit: Colours = np.where(linear <= 0.0031308, 12.92 * linear, curve)  # noqa: PLR2004
    return unit * 255


@dataclass(frozen=True, slots=True)
class Statistics:
    """What colour matching needs to know of pictures; `counts` is (3, 256)."""

    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]
    counts: NDArray[np.int64]


def statistics_of(pictures: list[NDArray[np.uint8]]) -> Statistics:
    """Mean (3,) and covariance (3, 3) in L*a*b*, and histograms of R, G and B, over all pixels."""
    total = np.zeros(RGB)
    squares = np.zeros((RGB, RGB))
    counts = np.zeros((RGB, _LEVELS), np.int64)
    pixel_count = 0
    for pixels in pictures:
        flat = pixels[..., :RGB].reshape(-1, RGB)
        lab = lab_of(flat).astype(np.float64)  # (pixels, 3)
        total += lab.sum(0)
        squares += lab.T @ lab
        counts += np.stack([np.bincount(flat[:, c], minlength=_LEVELS) for c in range(RGB)])
        pixel_count += len(flat)
    mean = total / pixel_count
    return Statistics(mean, squares / pixel_count - np.outer(mean, mean), counts)


def match_colours(
    pixels: NDArray[np.uint8], own: Statistics, wanted: Statistics, method: str, strength: float
) -> NDArray[np.uint8]:
    """Pixels (height, width, 3 or 4) with the colours of others; alpha is kept.

    `reinhard` moves mean and spread of each L*a*b* axis (Reinhard et al. 2001), `mkl` the whole
    covariance (Pitié and Kokaram 2007, linear Monge-Kantorovitch), `histogram` the distribution of
    R, G and B each.  `strength` 0 changes nothing, 1 is the full effect.
    """
    colours = pixels[..., :RGB]
    if method == "histogram":
        matched = _mapped(colours, own, wanted)
    else:
        matrix = _spread_map(own, wanted) if method == "reinhard" else _covariance_map(own, wanted)
        lab = lab_of(colours)  # (height, width, 3)
        shift = (wanted.mean - own.mean @ matrix).astype(np.float32)
        matched = rgb_of(lab @ matrix.astype(np.float32) + shift)
    blended = colours + np.float32(strength) * (matched - colours)  # (height, width, 3)
    bytes_ = np.clip(np.rint(blended), 0, 255).astype(np.uint8)
    return np.concatenate([bytes_, pixels[..., RGB:]], axis=2)


def _spread_map(own: Statistics, wanted: Statistics) -> NDArray[np.float64]:
    has, needs = np.diag(own.covariance), np.diag(wanted.covariance)
    ratio = np.sqrt(np.maximum(needs, 0) / np.maximum(has, 1e-6))
    # An axis without any spread (a grey picture) has nothing to be stretched.
    return np.diag(np.where(has > 1e-6, ratio, 1.0))  # noqa: PLR2004


def _covariance_map(own: Statistics, wanted: Statistics) -> NDArray[np.float64]:
    """The symmetric matrix T with T C_own T = C_wanted."""
    root = _power(own.covariance, 0.5)
    inverse = _power(own.covariance, -0.5)
    return inverse @ _power(root @ wanted.covariance @ root, 0.5) @ inverse


def _power(matrix: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
    """A power of a symmetric matrix; directions without any spread are left out."""
    values, vectors = np.linalg.eigh(matrix)
    usable = values > 1e-6  # noqa: PLR2004
    powered = np.where(usable, np.where(usable, values, 1.0) ** exponent, 0.0)
    result: NDArray[np.float64] = (vectors * powered) @ vectors.T
    return result


def _mapped(colours: NDArray[np.uint8], own: Statistics, wanted: Statistics) -> Colours:
    """Each level becomes the one at the same rank among the wanted ones.

    A level ranks where the middle of its pixels does, so that a flat picture takes the median.
    """
    levels = np.arange(_LEVELS)
    channels = []
    for channel in range(RGB):
        there = wanted.counts[channel] > 0
        has, needs = _ranks(own.counts[channel]), _ranks(wanted.counts[channel])
        table = np.interp(has, needs[there], levels[there]).astype(np.float32)
        channels.append(table[colours[..., channel]])
    return np.stack(channels, -1)


def _ranks(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    ranks: NDArray[np.float64] = (np.cumsum(counts) - counts / 2) / counts.sum()
    return ranks


def adjust(
    pixels: NDArray[np.uint8],
    *,
    brightness: float,
    contrast: float,
    saturation: float,
    gamma: float,
) -> NDArray[np.uint8]:
    """Brightness, contrast about middle grey, saturation, then gamma; 1 leaves each as it is."""
    unit = pixels[..., :RGB].astype(np.float32) / 255
    unit = (unit * brightness - 0.5) * contrast + 0.5  # (height, width, 3)
    grey = (unit @ REC_709)[..., None]  # (height, width, 1)
    unit = np.clip(grey + (unit - grey) * saturation, 0, 1)
    unit = unit ** np.float32(1 / gamma)
    changed = np.rint(unit * 255).astype(np.uint8)
    return np.concatenate([changed, pixels[..., RGB:]], axis=2)
