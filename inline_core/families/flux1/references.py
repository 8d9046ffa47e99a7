"""Pictures that FLUX.1 looks at, brought to sizes that it can have.

Never imports numpy itself: families are known without the libraries of the runtime.
"""

from __future__ import annotations

from typing import Final

from inline_core.errors import InvalidParam
from inline_core.media.values import Image

# Width and height that Kontext was trained on; published with it, in FluxKontextPipeline too.
SIZES: Final = (
    (672, 1568),
    (688, 1504),
    (720, 1456),
    (752, 1392),
    (800, 1328),
    (832, 1248),
    (880, 1184),
    (944, 1104),
    (1024, 1024),
    (1104, 944),
    (1184, 880),
    (1248, 832),
    (1328, 800),
    (1392, 752),
    (1456, 720),
    (1504, 688),
    (1568, 672),
)
_MULTIPLE: Final = 16


def as_reference(image: Image) -> Image:
    """The picture in the trained size whose shape is nearest, as FluxKontextPipeline does it.

    Raises: InvalidParam if it is smaller than a token.
    """
    import numpy as np
    from PIL import Image as PillowImage

    width, height = _whole_tokens(image)
    ratio = width / height
    size = min(SIZES, key=lambda size: (abs(ratio - size[0] / size[1]), size))
    picture = PillowImage.fromarray(image.pixels[:, :, :3])
    fitting = picture.resize(size, PillowImage.Resampling.LANCZOS)
    return Image(np.asarray(fitting), image.provenance)


def as_control(image: Image) -> Image:
    """The middle of a picture of depth or edges, in its own size.

    Raises: InvalidParam if it is smaller than a token.
    """
    import numpy as np

    width, height = _whole_tokens(image)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    cut = image.pixels[top : top + height, left : left + width, :3]
    return Image(np.ascontiguousarray(cut), image.provenance)


def _whole_tokens(image: Image) -> tuple[int, int]:
    """Width and height rounded down to whole tokens."""
    width, height = (side // _MULTIPLE * _MULTIPLE for side in (image.width, image.height))
    if not width or not height:
        message = (
            f"a reference image of {image.width}x{image.height} is too small: both sides need "
            f"{_MULTIPLE} pixels"
        )
        raise InvalidParam(message, port="image")
    return width, height
