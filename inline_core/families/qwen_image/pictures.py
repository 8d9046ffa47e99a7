"""Sizes at which Qwen-Image's edit models look at pictures.

Never imports torch or numpy itself: families are known without the libraries of the runtime.
"""

from __future__ import annotations

import math
from typing import Final

from inline_core.media.values import Image

# An option of a prompt: its one picture has no number, as Qwen-Image-Edit was trained.
ONE_PICTURE: Final = "one_picture"
# Pixels that the VAE gets, and that the text encoder of Edit-Plus gets (of their pipelines).
REFERENCE_PIXELS: Final = 1024 * 1024
CONDITION_PIXELS: Final = 384 * 384
_MULTIPLE: Final = 32


def as_reference(image: Image) -> Image:
    """The picture with about a megapixel, both sides multiples of 32."""
    return _scaled(image, REFERENCE_PIXELS)


def as_condition(image: Image) -> Image:
    """The picture with about 384 x 384 pixels, both sides multiples of 32."""
    return _scaled(image, CONDITION_PIXELS)


def _scaled(image: Image, area: int) -> Image:
    """As `calculate_dimensions` of QwenImageEditPlusPipeline, scaled with Lanczos as it does."""
    import numpy as np
    from PIL import Image as PillowImage

    ratio = image.width / image.height
    width = math.sqrt(area * ratio)
    height = width / ratio
    size = (round(width / _MULTIPLE) * _MULTIPLE, round(height / _MULTIPLE) * _MULTIPLE)
    picture = PillowImage.fromarray(image.pixels[:, :, :3])
    if picture.size != size:
        picture = picture.resize(
            (max(size[0], _MULTIPLE), max(size[1], _MULTIPLE)), PillowImage.Resampling.LANCZOS
        )
    return Image(np.asarray(picture), image.provenance)
