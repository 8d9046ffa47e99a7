"""What a picture node refuses to make, and how colours are written."""

from __future__ import annotations

import re
from typing import Final

from inline_core.errors import InvalidParam
from inline_core.media.limits import MAX_PIXELS, MAX_SIDE, too_large

__all__ = ["MAX_PIXELS", "MAX_SIDE", "Size", "check_size", "colour_of"]

_COLOUR: Final = re.compile(r"#?([0-9a-fA-F]{6})([0-9a-fA-F]{2})?")

Size = tuple[int, int]


def check_size(size: Size, param: str) -> Size:
    """`size` (width, height) again, if such a picture may be made.

    Raises: InvalidParam naming `param`.
    """
    width, height = size
    if width < 1 or height < 1:
        message = f"the result would be {width}x{height}: nothing would be left, make it larger"
        raise InvalidParam(message, param=param)
    problem = too_large(size)
    if problem is not None:
        raise InvalidParam(problem, param=param)
    return size


def colour_of(text: str, param: str) -> tuple[int, int, int, int]:
    """Red, green, blue and alpha (0..255) of `#rrggbb` or `#rrggbbaa`.

    Raises: InvalidParam naming `param`.
    """
    match = _COLOUR.fullmatch(text.strip())
    if match is None:
        message = f"{text!r} is no colour: write it as #rrggbb, such as #808080 for grey"
        raise InvalidParam(message, param=param)
    red, green, blue, alpha = bytes.fromhex(match[1] + (match[2] or "ff"))
    return red, green, blue, alpha
