"""Sizes at which Bria FIBO 2 looks at pictures.

Never imports torch or numpy itself: families are known without the libraries of the runtime.
Source: `BriaFibo2ImageProcessor` of diffusers.
"""

from __future__ import annotations

import math
from typing import Final

from inline_core.media.values import Image

AREA: Final = 1024 * 1024
SEEN_SIDE: Final = 768
_MULTIPLE: Final = 16
_LEAST_SIDE: Final = 4 * _MULTIPLE
_BAND: Final = (0.9, 1.1)


def trained_size(ratio: float) -> tuple[int, int]:
    """Width and height that the model was trained at, for pictures of a ratio width / height.

    Of the sizes within a tenth of the area the one that cuts off the least, then the nearest area.
    """
    area = AREA
    low, high = (share * area for share in _BAND)
    sizes = [
        (width, height)
        for width in range(_LEAST_SIDE, 2 * area // _LEAST_SIDE, _MULTIPLE)
        for height in range(_LEAST_SIDE, 2 * area // width, _MULTIPLE)
        if low <= width * height <= high
    ]

    def worth(size: tuple[int, int]) -> tuple[float, int, int]:
        own = size[0] / size[1]
        cut = 1 - min(own / ratio, ratio / own)
        return (round(cut, 9), abs(size[0] * size[1] - area), -size[0])

    return min(sizes, key=worth)


def as_reference(image: Image) -> Image:
    """The picture at its trained size: scaled to cover it, its middle cut out."""
    return covering(image, trained_size(image.width / image.height))


def as_condition(image: Image) -> Image:
    """The same picture as the text encoder sees it, no side longer than 768."""
    return seen(as_reference(image))


def covering(image: Image, size: tuple[int, int]) -> Image:
    """The picture scaled to cover a size, its middle cut out."""
    import numpy as np
    from PIL import Image as PillowImage

    width, height = size
    picture = PillowImage.fromarray(image.pixels[:, :, :3])
    scale = max(height / image.height, width / image.width)
    whole = (math.ceil(image.width * scale), math.ceil(image.height * scale))
    picture = picture.resize(whole, PillowImage.Resampling.LANCZOS)
    left, top = (whole[0] - width) // 2, (whole[1] - height) // 2
    picture = picture.crop((left, top, left + width, top + height))
    return Image(np.asarray(picture), image.provenance)


def seen(image: Image) -> Image:
    """The picture with no side longer than 768."""
    import numpy as np
    from PIL import Image as PillowImage

    picture = PillowImage.fromarray(image.pixels[:, :, :3])
    picture.thumbnail((SEEN_SIDE, SEEN_SIDE))
    return Image(np.asarray(picture), image.provenance)
