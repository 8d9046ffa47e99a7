"""Checks pictures against captions with plain image analysis, blind to how they were made.

Background: the commonest palette colour of the border. Foreground: the pixels far from it, with
the commonest palette colour among them. Place: the foreground's centre of gravity. Shape: the
drawn template with the greatest overlap, after both are scaled to their bounding boxes.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from .captions import PALETTE, PLACES, SHAPES, Scene, all_scenes
from .drawing import IMAGE_SIZE, OFFSET, RADII, Pixels, draw_mask

BORDER: Final = 3
MIN_PIXELS: Final = 40
CELLS: Final = 32
MIN_OVERLAP: Final = 0.7
FIELDS: Final = ("colour", "background", "place", "shape", "size")
BoolMask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Sight:
    """What the checker sees in a picture; "none" where there is no foreground."""

    shape: str
    size: str
    place: str
    colour: str
    background: str
    overlap: float


def _nearest(pixels: npt.NDArray[np.float32]) -> npt.NDArray[np.intp]:
    """Return for each of (N, 3) pixels in 0..255 the index of its nearest palette colour, (N,)."""
    palette = np.array(list(PALETTE.values()), dtype=np.float32)
    distance: npt.NDArray[np.float32] = ((pixels[:, None] - palette[None]) ** 2).sum(-1)
    nearest: npt.NDArray[np.intp] = distance.argmin(1)
    return nearest


def _commonest(pixels: npt.NDArray[np.float32]) -> str:
    """Return the palette name that most of the (N, 3) pixels are nearest to."""
    counts = np.bincount(_nearest(pixels), minlength=len(PALETTE))
    return list(PALETTE)[int(counts.argmax())]


def _foreground(picture: npt.NDArray[np.float32], ground: npt.NDArray[np.float32]) -> BoolMask:
    """Return the largest region of (H, W, 3) that is far from the ground colour, as a mask.

    The cut is half way between the ground and the far colours, so that a soft edge is cut in its
    middle.
    """
    distance = np.sqrt(((picture - ground) ** 2).sum(-1))
    far = np.percentile(distance, 99)
    cut = max(30.0, float(far) * 0.5)
    return largest_region(distance > cut)


def largest_region(mask: BoolMask) -> BoolMask:
    """Return only the largest 4-connected region of a mask."""
    left = mask.copy()
    best = np.zeros_like(mask)
    while left.sum() > best.sum():
        seed = np.argwhere(left)[0]
        region = np.zeros_like(mask)
        region[tuple(seed)] = True
        grown = _grow(region) & left
        while grown.sum() > region.sum():
            region, grown = grown, _grow(grown) & left
        if region.sum() > best.sum():
            best = region
        left &= ~region
    return best


def _grow(mask: BoolMask) -> BoolMask:
    """Return a mask grown by one pixel in four directions."""
    grown = mask.copy()
    grown[1:] |= mask[:-1]
    grown[:-1] |= mask[1:]
    grown[:, 1:] |= mask[:, :-1]
    grown[:, :-1] |= mask[:, 1:]
    return grown


def _boxed(mask: BoolMask) -> BoolMask:
    """Return a mask cut to its bounding box and scaled to (32, 32)."""
    rows, columns = np.where(mask.any(1))[0], np.where(mask.any(0))[0]
    cut = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scaled = Image.fromarray((cut * 255).astype(np.uint8)).resize(
        (CELLS, CELLS), Image.Resampling.BILINEAR
    )
    return np.asarray(scaled) > 127


def _templates() -> dict[str, BoolMask]:
    """Return each shape drawn large, boxed to (32, 32)."""
    middle = IMAGE_SIZE / 2
    return {shape: _boxed(draw_mask(shape, middle, middle, 45.0) > 0.5) for shape in SHAPES}


def _place(mask: BoolMask) -> str:
    """Return the place of a mask's centre of gravity."""
    rows, columns = np.where(mask)
    dx, dy = columns.mean() + 0.5 - IMAGE_SIZE / 2, rows.mean() + 0.5 - IMAGE_SIZE / 2
    if max(abs(dx), abs(dy)) < OFFSET / 2:
        return PLACES[0]
    if abs(dx) > abs(dy):
        return "left" if dx < 0 else "right"
    return "top" if dy < 0 else "bottom"


def _size(mask: BoolMask, shape: str) -> str:
    """Return the size whose drawn area is nearest (by ratio) to the mask's area."""
    middle = IMAGE_SIZE / 2
    areas = {
        name: float(draw_mask(shape, middle, middle, radius).sum())
        for name, radius in RADII.items()
    }
    area = float(mask.sum())
    return min(areas, key=lambda name: abs(np.log(area / areas[name])))


def look(picture: Pixels) -> Sight:
    """Return what is seen in a picture of (128, 128, 3) uint8."""
    floats = picture.astype(np.float32)
    inner = np.zeros(picture.shape[:2], dtype=bool)
    inner[BORDER:-BORDER, BORDER:-BORDER] = True
    border = floats[~inner]
    background = _commonest(border)
    mask = _foreground(floats, np.median(border, axis=0).astype(np.float32))
    if mask.sum() < MIN_PIXELS:
        return Sight("none", "none", "none", "none", background, 0.0)
    boxed = _boxed(mask)
    scores = {
        shape: float((boxed & template).sum() / (boxed | template).sum())
        for shape, template in _templates().items()
    }
    shape = max(scores, key=lambda name: scores[name])
    return Sight(
        shape=shape if scores[shape] >= MIN_OVERLAP else "none",
        size=_size(mask, shape),
        place=_place(mask),
        colour=_commonest(floats[mask]),
        background=background,
        overlap=scores[shape],
    )


def held_out_scenes(count: int, seed: int = 0) -> list[Scene]:
    """Return `count` held-out scenes, the same ones for the same seed."""
    return random.Random(seed).sample(all_scenes(held_out=True), count)


def score(pictures: list[Pixels], scenes: list[Scene]) -> dict[str, float]:
    """Return the share of right answers in percent, field by field, and the mean overlap."""
    sights = [look(picture) for picture in pictures]
    right: Counter[str] = Counter()
    for sight, scene in zip(sights, scenes, strict=True):
        seen = asdict(sight)
        right.update(field for field in FIELDS if seen[field] == getattr(scene, field))
    figures = {field: 100.0 * right[field] / len(scenes) for field in FIELDS}
    figures["overlap"] = float(np.mean([sight.overlap for sight in sights]))
    return figures


def contact_sheet(pictures: list[Pixels], columns: int = 10) -> Image.Image:
    """Return the pictures in a grid, with thin lines between them."""
    step = IMAGE_SIZE + 2
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * step, rows * step), (128, 128, 128))
    for index, picture in enumerate(pictures):
        sheet.paste(Image.fromarray(picture), (index % columns * step, index // columns * step))
    return sheet
