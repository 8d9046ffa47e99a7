"""A picture with the transparency of another: how a drawn mask is kept with its picture."""

from __future__ import annotations

import io

from PIL import Image as PillowImage
from PIL import UnidentifiedImageError

from inline_core.errors import InvalidAsset
from inline_core.media.png import check_pixels


def with_mask(picture: bytes, mask: bytes, *, max_pixels: int) -> bytes:
    """A PNG of `picture` with the alpha of `mask`, scaled to it.  Raises: InvalidAsset."""
    try:
        with (
            PillowImage.open(io.BytesIO(picture)) as base,
            PillowImage.open(io.BytesIO(mask)) as drawn,
        ):
            check_pixels(base.size, max_pixels, "The picture")
            check_pixels(drawn.size, max_pixels, "The mask")
            result = base.convert("RGBA")
            alpha = drawn.convert("RGBA").getchannel("A")
    except (UnidentifiedImageError, OSError, ValueError) as error:
        message = "The picture or its mask could not be read."
        raise InvalidAsset(message) from error
    if alpha.size != result.size:
        alpha = alpha.resize(result.size)
    result.putalpha(alpha)
    return _png(result)


def in_channel(picture: bytes, channel: str, *, max_pixels: int) -> bytes:
    """A PNG of the colours (`rgb`) or of the alpha (`a`) of a picture.  Raises: InvalidAsset."""
    shown = _opened(picture, max_pixels).convert("RGBA")
    if channel == "rgb":
        return _png(shown.convert("RGB"))
    # Black, as transparent as the picture: what the page's mask editor draws on.
    black = PillowImage.new("RGBA", shown.size)
    black.putalpha(shown.getchannel("A"))
    return _png(black)


def small(picture: bytes, extension: str, quality: int, *, max_pixels: int) -> bytes:
    """The picture as WebP or JPEG, for a preview.  Raises: InvalidAsset."""
    shown = _opened(picture, max_pixels)
    buffer = io.BytesIO()
    if extension == "jpeg":
        shown.convert("RGB").save(buffer, "JPEG", quality=quality)
    else:
        plain = shown if shown.mode in {"RGB", "RGBA"} else shown.convert("RGBA")
        plain.save(buffer, "WEBP", quality=quality)
    return buffer.getvalue()


def _opened(picture: bytes, max_pixels: int) -> PillowImage.Image:
    try:
        with PillowImage.open(io.BytesIO(picture)) as opened:
            check_pixels(opened.size, max_pixels, "The picture")
            opened.load()
            return opened.copy()
    except (UnidentifiedImageError, OSError, ValueError) as error:
        message = "The picture could not be read."
        raise InvalidAsset(message) from error


def _png(picture: PillowImage.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
