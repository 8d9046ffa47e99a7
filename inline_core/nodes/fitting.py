"""Pictures and masks cut to sizes that a model can have."""

from __future__ import annotations

import numpy as np
from PIL import Image as PillowImage

from inline_core.errors import InvalidParam
from inline_core.media.values import Image, ImageBatch, Mask
from inline_core.nodes.base import NodeContext


def fitted(ctx: NodeContext, image: Image, multiple: int) -> Image:
    """The middle of a picture with sides that are multiples; says what was cut.

    Raises: InvalidParam if nothing is left.
    """
    left, top, width, height = _middle(image.width, image.height, multiple)
    if (width, height) == (image.width, image.height):
        return image
    ctx.warn(
        f"the picture of {image.width}x{image.height} was cut to {width}x{height}: the model needs "
        f"multiples of {multiple}."
    )
    cut = image.pixels[top : top + height, left : left + width]
    return Image(np.ascontiguousarray(cut), image.provenance)


def fitted_mask(mask: Mask, image: Image | ImageBatch, multiple: int) -> Mask:
    """A mask of a picture, scaled to it and cut as `fitted` cuts the picture."""
    first = image.images[0] if isinstance(image, ImageBatch) else image
    size = (first.width, first.height)
    values = mask.values
    if values.shape != (first.height, first.width):
        scaled = PillowImage.fromarray(values).resize(size, PillowImage.Resampling.BILINEAR)
        values = np.asarray(scaled)
    left, top, width, height = _middle(*size, multiple)
    return Mask(np.ascontiguousarray(values[top : top + height, left : left + width]))


def _middle(width: int, height: int, multiple: int) -> tuple[int, int, int, int]:
    inner = (width // multiple * multiple, height // multiple * multiple)
    if not all(inner):
        message = f"a picture of {width}x{height} is too small: it needs {multiple} pixels a side"
        raise InvalidParam(message, port="image")
    return (width - inner[0]) // 2, (height - inner[1]) // 2, *inner
