"""Sizes at which LongCat-Image-Edit looks at its picture.

Never imports torch or numpy itself: families are known without the libraries of the runtime.
"""

from __future__ import annotations

import math
from typing import Final

from inline_core.media.values import Image

# Pixels that the VAE gets; the text encoder gets half the width and height (of its pipeline).
REFERENCE_PIXELS: Final = 1024 * 1024
_MULTIPLE: Final = 16


def as_reference(image: Image) -> Image:
    """The picture with about a megapixel, both sides multiples of 16."""
    return _scaled(image, _size(image))


def as_condition(image: Image) -> Image:
    """The same picture, half as wide and high."""
    width, height = _size(image)
    return _scaled(as_reference(image), (width // 2, height // 2))


def _size(image: Image) -> tuple[int, int]:
    """As `calculate_dimensions` of LongCatImageEditPipeline: rounded up."""
    ratio = image.width / image.height
    width = math.sqrt(REFERENCE_PIXELS * ratio)
    height = width / ratio
    return (math.ceil(width / _MULTIPLE) * _MULTIPLE, math.ceil(height / _MULTIPLE) * _MULTIPLE)


def _scaled(image: Image, size: tuple[int, int]) -> Image:
    import numpy as np
    from PIL import Image as PillowImage

    picture = PillowImage.fromarray(image.pixels[:, :, :3])
    if picture.size != size:
        picture = picture.resize(size, PillowImage.Resampling.LANCZOS)
    return Image(np.asarray(picture), image.provenance)
