"""Work on a picture tile by tile: where they lie, and how they are blended.  No torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float32]

Span = tuple[int, int]


def spans(length: int, tile: int, overlap: int) -> list[Span]:
    """Evenly spread parts of `tile` pixels that overlap by at least `overlap`; one if it fits."""
    if length <= tile:
        return [(0, length)]
    count = -(-(length - overlap) // (tile - overlap))
    starts = [round(index * (length - tile) / (count - 1)) for index in range(count)]
    return [(start, start + tile) for start in starts]


def weights(parts: list[Span], overlap: int) -> list[Values]:
    """How much each part counts at each of its pixels; over all parts that is 1 everywhere.

    Where it was cut, a third of the overlap does not count at all, as a network sees nothing beyond
    it; then it fades in.
    """
    length = parts[-1][1]
    margin = overlap // 3
    fade = overlap - 2 * margin + 1
    rises = []
    for start, end in parts:
        at = np.arange(start, end)
        rise = np.ones(end - start)
        if start > 0:
            rise = np.minimum(rise, (at - start + 1 - margin) / fade)
        if end < length:
            rise = np.minimum(rise, (end - at - margin) / fade)
        rises.append(np.maximum(rise, 0))
    total = np.zeros(length)
    for (start, end), rise in zip(parts, rises, strict=True):
        total[start:end] += rise
    return [
        (rise / total[start:end]).astype(np.float32)
        for (start, end), rise in zip(parts, rises, strict=True)
    ]


def in_tiles(
    pixels: NDArray[np.uint8],
    scale: int,
    tile: int,
    overlap: int,
    enlarge: Callable[[NDArray[np.uint8]], Values],
    report: Callable[[int, int], None],
) -> NDArray[np.uint8]:
    """Enlarge pixels (height, width, 3) by `scale`, tile by tile, blended where they overlap.

    `enlarge` takes a part (h, w, 3) uint8 and gives (h * scale, w * scale, 3) float32 in 0..1.
    Only one row of tiles is held in float32.  `report(done, count)` is called after each tile and
    may raise.
    """
    height, width = pixels.shape[:2]
    rows, columns = spans(height, tile, overlap), spans(width, tile, overlap)
    result = np.empty((height * scale, width * scale, 3), np.uint8)
    large_rows, large_columns = _times(rows, scale), _times(columns, scale)
    down = weights(large_rows, overlap * scale)
    across = weights(large_columns, overlap * scale)
    carried: Values = np.zeros((0, width * scale, 3), np.float32)
    for row, (top, bottom) in enumerate(rows):
        strip = np.zeros(((bottom - top) * scale, width * scale, 3), np.float32)
        strip[: len(carried)] = carried
        for column, (left, right) in enumerate(columns):
            part = enlarge(pixels[top:bottom, left:right])
            part *= down[row][:, None, None] * across[column][None, :, None]
            first, last = large_columns[column]
            strip[:, first:last] += part
            report(row * len(columns) + column + 1, len(rows) * len(columns))
        until = rows[row + 1][0] if row + 1 < len(rows) else bottom
        done = (until - top) * scale
        ready = np.clip(np.rint(strip[:done] * 255), 0, 255)
        result[top * scale : until * scale] = ready.astype(np.uint8)
        carried = strip[done:]
    return result


def _times(parts: list[Span], scale: int) -> list[Span]:
    return [(start * scale, end * scale) for start, end in parts]
