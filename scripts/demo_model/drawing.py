"""Draws scenes with Pillow: supersampled masks, scaled down, blended between two colours."""

from __future__ import annotations

import math
import random
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from .captions import PALETTE, Scene

IMAGE_SIZE: Final = 128
SUPERSAMPLE: Final = 4
RADII: Final[dict[str, float]] = {"small": 16.0, "medium": 23.0, "large": 31.0}
OFFSET: Final = 24.0
OFFSETS: Final[dict[str, tuple[float, float]]] = {
    "center": (0.0, 0.0),
    "left": (-OFFSET, 0.0),
    "right": (OFFSET, 0.0),
    "top": (0.0, -OFFSET),
    "bottom": (0.0, OFFSET),
}
MOVE_JITTER: Final = 1.5
SCALE_JITTER: Final = 0.03
COLOUR_JITTER: Final = 3
STAR_INNER: Final = 0.45

Pixels = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.float32]


def outline(shape: str, x: float, y: float, radius: float) -> list[tuple[float, float]]:
    """Return the corners of a shape whose centre of area is (x, y); 64 of them for a circle."""
    if shape == "square":
        half = 0.89 * radius
        return [
            (x - half, y - half),
            (x + half, y - half),
            (x + half, y + half),
            (x - half, y + half),
        ]
    if shape == "circle":
        count, radii = 64, [radius]
    elif shape == "triangle":
        count, radii = 3, [1.2 * radius]
    else:
        count, radii = 10, [1.2 * radius, 1.2 * radius * STAR_INNER]
    corners = []
    for index in range(count):
        angle = 2 * math.pi * index / count - math.pi / 2
        reach = radii[index % len(radii)]
        corners.append((x + reach * math.cos(angle), y + reach * math.sin(angle)))
    return corners


def draw_mask(shape: str, x: float, y: float, radius: float, size: int = IMAGE_SIZE) -> Mask:
    """Return the shape's coverage as (size, size) float32 in 0..1; x, y, radius in pixels."""
    canvas = Image.new("L", (size * SUPERSAMPLE, size * SUPERSAMPLE), 0)
    corners = [(cx * SUPERSAMPLE, cy * SUPERSAMPLE) for cx, cy in outline(shape, x, y, radius)]
    ImageDraw.Draw(canvas).polygon(corners, fill=255)
    small = canvas.resize((size, size), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float32) / 255.0


def _colour(name: str, rng: random.Random) -> npt.NDArray[np.float32]:
    """Return a palette colour with a little jitter, (3,) float32 in 0..255."""
    jitter = [rng.uniform(-COLOUR_JITTER, COLOUR_JITTER) for _ in range(3)]
    return np.clip(np.array(PALETTE[name], dtype=np.float32) + np.array(jitter, np.float32), 0, 255)


def blend(mask: Mask, colour: npt.NDArray[np.float32], ground: npt.NDArray[np.float32]) -> Pixels:
    """Return (H, W, 3) uint8: `colour` where the mask is 1, `ground` where it is 0."""
    picture = ground + mask[..., None] * (colour - ground)
    return np.rint(picture).astype(np.uint8)


def draw_scene(scene: Scene, rng: random.Random) -> Pixels:
    """Return one drawing of a scene, (128, 128, 3) uint8, with a little jitter."""
    dx, dy = OFFSETS[scene.place]
    x = IMAGE_SIZE / 2 + dx + rng.uniform(-MOVE_JITTER, MOVE_JITTER)
    y = IMAGE_SIZE / 2 + dy + rng.uniform(-MOVE_JITTER, MOVE_JITTER)
    radius = RADII[scene.size] * (1 + rng.uniform(-SCALE_JITTER, SCALE_JITTER))
    mask = draw_mask(scene.shape, x, y, radius)
    return blend(mask, _colour(scene.colour, rng), _colour(scene.background, rng))


def draw_detail(scene: Scene, rng: random.Random, size: int) -> Pixels:
    """Return a small picture for the autoencoder: the scene's shape anywhere near an edge.

    The result is (size, size, 3) uint8; the shape may be cut by the border.
    """
    radius = RADII[scene.size] * rng.uniform(0.9, 1.1)
    x, y = rng.uniform(0, size), rng.uniform(0, size)
    mask = draw_mask(scene.shape, x, y, radius, size)
    return blend(mask, _colour(scene.colour, rng), _colour(scene.background, rng))
