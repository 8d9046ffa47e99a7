"""How large a picture may get that this program makes."""

from __future__ import annotations

from typing import Final

MAX_SIDE: Final = 16384
# The default of INLINE_MAX_PIXELS: a larger take could not be read back when it is used again.
MAX_PIXELS: Final = 100_000_000


def too_large(size: tuple[int, int]) -> str | None:
    """What is wrong with making a picture of `size` (width, height); None if nothing is."""
    width, height = size
    if width <= MAX_SIDE and height <= MAX_SIDE and width * height <= MAX_PIXELS:
        return None
    return (
        f"the result would be {width}x{height}: at most {MAX_SIDE} pixels a side and "
        f"{MAX_PIXELS / 1e6:.0f} megapixels are made, make it smaller"
    )
