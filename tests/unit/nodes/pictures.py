"""Pictures drawn for tests, and what a node needs of its context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL import ImageDraw

from inline_core.errors import RunCancelled
from inline_core.media.values import Image, ImageBatch, Mask
from inline_core.nodes.base import NodeContext

Pixels = NDArray[np.uint8]


class Quiet:
    """A context that keeps warnings, and cancels after some checks."""

    def __init__(self, checks: int | None = None) -> None:
        self.warnings: list[str] = []
        self.facts: dict[str, object] = {}
        self._left = checks

    def check_cancelled(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise RunCancelled

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def describe(self, **facts: object) -> None:
        self.facts.update(facts)

    def progress(self, *args: Any, **named: Any) -> None: ...

    def preview(self, encode: Callable[[], bytes]) -> None: ...


def context(checks: int | None = None) -> NodeContext:
    return cast("NodeContext", Quiet(checks))


def warnings_of(ctx: NodeContext) -> list[str]:
    return cast("Quiet", ctx).warnings


def scene(width: int = 90, height: int = 60, shade: int = 0) -> Image:
    """A gradient with shapes and a word; `provenance` has a seed."""
    x = np.linspace(0, 255, width)[None, :, None]
    y = np.linspace(0, 255, height)[:, None, None]
    values = np.concatenate(np.broadcast_arrays(x, y, 255 - x / 2 - y / 2), axis=2)
    picture = PillowImage.fromarray(values.astype(np.uint8), "RGB")
    draw = ImageDraw.Draw(picture)
    draw.ellipse((width // 8, height // 6, width // 2, height * 2 // 3), fill=(200, 40, shade))
    draw.rectangle((width // 2, height // 2, width * 7 // 8, height * 7 // 8), fill=(20, 90, 160))
    draw.text((width // 3, height // 3), "Core", fill=(255, 255, 255))
    return Image(np.asarray(picture, np.uint8), {"seed": 7, "model": {"name": "m"}})


def cutout(width: int = 64, height: int = 48) -> Image:
    """A red disc with a soft edge on fully transparent green."""
    y, x = np.mgrid[:height, :width]
    distance = np.hypot(x - width / 2, y - height / 2)
    alpha = np.clip((height / 3 - distance) * 64, 0, 255)
    pixels = np.zeros((height, width, 4), np.uint8)
    pixels[..., 1] = 255
    pixels[alpha > 0] = (255, 0, 0, 0)
    pixels[..., 3] = alpha.astype(np.uint8)
    return Image(pixels)


def spots(width: int = 40, height: int = 30, seed: int = 0) -> Mask:
    """A mask with a few blobs of different strength."""
    generator = np.random.default_rng(seed)
    values = np.zeros((height, width), np.uint8)
    for _ in range(12):
        row, column = generator.integers(height), generator.integers(width)
        values[row : row + 3, column : column + 2] = generator.integers(1, 256)
    return Mask(values)


def one(result: Image | ImageBatch) -> Image:
    assert isinstance(result, Image)
    return result


def several(result: Image | ImageBatch) -> tuple[Image, ...]:
    assert isinstance(result, ImageBatch)
    return result.images


def furthest(first: NDArray[Any], second: NDArray[Any]) -> float:
    """The largest difference of two arrays of one shape."""
    assert first.shape == second.shape, (first.shape, second.shape)
    return float(np.abs(first.astype(np.float64) - second.astype(np.float64)).max())
