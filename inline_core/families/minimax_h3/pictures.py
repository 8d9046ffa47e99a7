"""How MiniMax H3 looks at reference pictures.

Never imports numpy itself: families are known without the libraries of the runtime.
"""

from __future__ import annotations

from typing import Final

from inline_core.errors import InvalidParam
from inline_core.media.values import Image

_MULTIPLE: Final = 32
_NARROWEST: Final = 4
REFERENCE_EDGE: Final = 2048


def as_reference(image: Image, edge: int | None = None) -> Image:
    """A picture as the model looks at it: its shorter side `edge` pixels, in multiples of 32.

    As `MiniMaxH3Ref2VASetupStep` does, with 2048 where nothing else is wanted.
    Raises: InvalidParam for one that is too narrow.
    """
    import numpy as np
    from PIL import Image as PillowImage

    narrow = min(image.width, image.height)
    if max(image.width, image.height) > _NARROWEST * narrow:
        message = f"a reference of {image.width}x{image.height} is too narrow: 4:1 at most"
        raise InvalidParam(message, port="references")
    scale = (edge or REFERENCE_EDGE) / narrow / _MULTIPLE
    width, height = (
        max(1, round(side * scale)) * _MULTIPLE for side in (image.width, image.height)
    )
    picture = PillowImage.fromarray(image.pixels[:, :, :3])
    if picture.size != (width, height):
        picture = picture.resize((width, height), PillowImage.Resampling.LANCZOS)
    return Image(np.asarray(picture), image.provenance)
