"""The size at which Qwen-Image 2.1 looks at pictures.

Never imports torch or numpy itself: families are known without the libraries of the runtime.
"""

from __future__ import annotations

import math
from typing import Final

from inline_core.media.values import Image

# Of QwenImage21Pipeline (output_resolution): text encoder and VAE get the same picture.
REFERENCE_PIXELS: Final = 1024 * 1024
MULTIPLE: Final = 32


def as_reference(image: Image) -> Image:
    """The picture with about a megapixel, both sides multiples of 32.

    As `calculate_dimensions` of the pipeline, scaled with Lanczos as it does.
    """
    import numpy as np
    from PIL import Image as PillowImage

    ratio = image.width / image.height
    width = math.sqrt(REFERENCE_PIXELS * ratio)
    sides = (max(round(side / MULTIPLE) * MULTIPLE, MULTIPLE) for side in (width, width / ratio))
    size = (next(sides), next(sides))
    picture = PillowImage.fromarray(image.pixels)
    if picture.size != size:
        picture = picture.resize(size, PillowImage.Resampling.LANCZOS)
    return Image(np.asarray(picture), image.provenance)
