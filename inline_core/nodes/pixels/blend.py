"""Put pictures over each other: compositing and blend modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from inline_core.nodes.pixels.resample import RGB, RGBA, as_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float32]
    Mode = Callable[[Values, Values], Values]


def _overlay(low: Values, high: Values) -> Values:
    return np.where(low <= 0.5, 2 * low * high, 1 - 2 * (1 - low) * (1 - high))  # noqa: PLR2004


def _soft_light(low: Values, high: Values) -> Values:
    curve = np.where(low <= 0.25, ((16 * low - 12) * low + 4) * low, np.sqrt(low))  # noqa: PLR2004
    darker = low - (1 - 2 * high) * low * (1 - low)
    return np.where(high <= 0.5, darker, low + (2 * high - 1) * (curve - low))  # noqa: PLR2004


def _dodge(low: Values, high: Values) -> Values:
    return np.where(low <= 0, 0, np.minimum(low / np.maximum(1 - high, 1e-6), 1))


def _burn(low: Values, high: Values) -> Values:
    return np.where(low >= 1, 1, 1 - np.minimum((1 - low) / np.maximum(high, 1e-6), 1))


# Formulas: W3C Compositing and Blending, section 10; `low` is below, `high` is put on it, 0..1.
MODES: Final[Mapping[str, Mode]] = MappingProxyType(
    {
        "normal": lambda _, high: high,
        "multiply": lambda low, high: low * high,
        "screen": lambda low, high: low + high - low * high,
        "overlay": _overlay,
        "soft-light": _soft_light,
        "hard-light": lambda low, high: _overlay(high, low),
        "difference": lambda low, high: np.abs(low - high),
        "exclusion": lambda low, high: low + high - 2 * low * high,
        "subtract": lambda low, high: low - high,
        "add": lambda low, high: low + high,
        "darken": np.minimum,
        "lighten": np.maximum,
        "colour-dodge": _dodge,
        "colour-burn": _burn,
    }
)


def _unit(pixels: NDArray[np.uint8]) -> Values:
    values: Values = pixels.astype(np.float32)
    values *= np.float32(1 / 255)
    return values


def blend(
    below: NDArray[np.uint8], above: NDArray[np.uint8], mode: str, factor: float
) -> NDArray[np.uint8]:
    """Two pictures of one size, the second put on the first as `mode` says, `factor` of it (0..1).

    The result has the alpha of `below`; where `above` is transparent, it does less.
    """
    low, high = _unit(below[..., :RGB]), _unit(above[..., :RGB])
    share = np.full((1, 1, 1), factor, np.float32)
    if above.shape[2] == RGBA:
        share = factor * _unit(above[..., RGB:])  # (height, width, 1)
    blended = low * (1 - share) + MODES[mode](low, high) * share  # (height, width, 3)
    return np.concatenate([as_bytes(blended * 255), below[..., RGB:]], axis=2)


def composite(
    below: NDArray[np.uint8],
    above: NDArray[np.uint8],
    mask: NDArray[np.uint8] | None,
    place: tuple[int, int],
) -> NDArray[np.uint8]:
    """`above` over `below` with its left top corner at `place` (x, y), which may be outside.

    `mask` (of the size of `above`, 255: covers) and the alpha of `above` say how much it covers.
    Alpha is composited by Porter and Duff's "over" where `below` has any.
    """
    x, y = place
    height, width = below.shape[:2]
    left, top = max(x, 0), max(y, 0)
    right, bottom = min(x + above.shape[1], width), min(y + above.shape[0], height)
    result = below.copy()
    if left >= right or top >= bottom:
        return result
    part = above[top - y : bottom - y, left - x : right - x]
    cover = np.ones((*part.shape[:2], 1), np.float32)
    if mask is not None:
        cover *= mask[top - y : bottom - y, left - x : right - x, None].astype(np.float32) / 255
    if part.shape[2] == RGBA:
        cover *= part[..., RGB:].astype(np.float32) / 255
    under = below[top:bottom, left:right].astype(np.float32)
    colours = part[..., :RGB].astype(np.float32)
    if below.shape[2] == RGBA:
        kept = under[..., RGB:] / 255 * (1 - cover)
        alpha = cover + kept
        mixed = (colours * cover + under[..., :RGB] * kept) / np.maximum(alpha, 1e-6)
        mixed = np.where(alpha > 0, mixed, under[..., :RGB])
        merged = np.concatenate([mixed, alpha * 255], axis=2)
    else:
        merged = under + (colours - under) * cover
    result[top:bottom, left:right] = as_bytes(merged)
    return result
