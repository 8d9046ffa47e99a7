"""Reference images of FLUX.2: brought to a size that the model looks at.

Never imports numpy itself: families are known without the libraries of the runtime.
"""

from __future__ import annotations

import math
from typing import Final

from inline_core.errors import InvalidParam
from inline_core.media.values import Image

LEAST_SIDE: Final = 64
MOST_PIXELS: Final = 1024 * 1024
LONGEST: Final = 8
_MULTIPLE: Final = 16


def as_reference(image: Image) -> Image:
    """The picture with at most a megapixel, its middle cut to multiples of 16, as diffusers does.

    Raises: InvalidParam if it is too small or too long.
    """
    import numpy as np
    from PIL import Image as PillowImage

    width, height = image.width, image.height
    if min(width, height) < LEAST_SIDE or max(width, height) > LONGEST * min(width, height):
        message = (
            f"a reference image of {width}x{height} is too small or too long: both sides need "
            f"{LEAST_SIDE} pixels, and one may be {LONGEST} times the other at most"
        )
        raise InvalidParam(message, port="image")
    picture = PillowImage.fromarray(image.pixels[:, :, :3])
    if width * height > MOST_PIXELS:
        scale = math.sqrt(MOST_PIXELS / (width * height))
        size = (int(width * scale), int(height * scale))
        picture = picture.resize(size, PillowImage.Resampling.LANCZOS)
    width, height = (side // _MULTIPLE * _MULTIPLE for side in picture.size)
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    cut = picture.crop((left, top, left + width, top + height))
    return Image(np.asarray(cut), image.provenance)
