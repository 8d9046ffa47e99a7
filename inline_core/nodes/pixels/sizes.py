"""How large a resized picture gets, and which part of the old one it shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from inline_core.errors import InvalidParam
from inline_core.nodes.pixels.limits import Size, check_size
from inline_core.nodes.pixels.resample import RGB, RGBA, Pixels, resize

MEGAPIXEL: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """What decides the new size; `by` says which of the others counts.

    `by` is one of size, width, height, longer, shorter, factor, megapixels, match, multiple.
    """

    by: str
    width: int
    height: int
    side: int
    factor: float
    megapixels: float
    multiple: int
    match: Size | None = None


def new_size(old: Size, wanted: Wanted) -> Size:
    """Width and height of the result for a picture of size `old`.

    Raises: InvalidParam for a size that is not made, or when there is no picture to match.
    """
    width, height = _exact_size(old, wanted)
    if wanted.multiple > 1:
        step = wanted.multiple
        round_to = math.floor if wanted.by == "multiple" else round
        width = max(round_to(width / step) * step, step)
        height = max(round_to(height / step) * step, step)
    return check_size((max(round(width), 1), max(round(height), 1)), _PARAM_OF.get(wanted.by, "by"))


_PARAM_OF: Final = {
    "size": "width",
    "width": "width",
    "height": "height",
    "longer": "side",
    "shorter": "side",
    "factor": "factor",
    "megapixels": "megapixels",
    "multiple": "multiple",
}


def _exact_size(old: Size, wanted: Wanted) -> tuple[float, float]:
    width, height = old
    if wanted.by == "match":
        if wanted.match is None:
            message = "there is nothing to match: wire a picture there, or resize by something else"
            raise InvalidParam(message, port="match")
        return wanted.match
    if wanted.by == "multiple":
        return old
    if wanted.by == "size" and wanted.width and wanted.height:
        return wanted.width, wanted.height
    scale = _scale(old, wanted)
    exact = (width * scale, height * scale)
    # What was asked for is met exactly, whatever a float makes of it.
    if wanted.by in {"size", "width"} and wanted.width:
        return wanted.width, exact[1]
    if wanted.by in {"size", "height"} and wanted.height:
        return exact[0], wanted.height
    return exact


def _scale(old: Size, wanted: Wanted) -> float:
    width, height = old
    asked = {
        "width": (wanted.width, width),
        "height": (wanted.height, height),
        "longer": (wanted.side, max(old)),
        "shorter": (wanted.side, min(old)),
    }
    if wanted.by == "factor":
        return wanted.factor
    if wanted.by == "megapixels":
        return math.sqrt(wanted.megapixels * MEGAPIXEL / (width * height))
    if wanted.by == "size":  # a side of 0 follows the other one
        return (wanted.width / width) or (wanted.height / height) or 1.0
    new, now = asked[wanted.by]
    if not new:
        message = f"{_PARAM_OF[wanted.by]} is 0: say how large the picture shall get"
        raise InvalidParam(message, param=_PARAM_OF[wanted.by])
    return new / now


def resized(
    pixels: Pixels, wanted: Wanted, fit: str, method: str, colour: tuple[int, int, int, int]
) -> Pixels:
    """Pixels, or a mask, resized as it is wanted.  Raises: InvalidParam (see `new_size`).

    Where only whole pixels keep the proportions from being the old ones, `fit` has no say.
    """
    size = new_size((pixels.shape[1], pixels.shape[0]), wanted)
    chosen = wanted.by in {"match", "multiple"} or (
        wanted.by == "size" and bool(wanted.width and wanted.height)
    )
    whole = not chosen and wanted.multiple == 1
    return fitted(pixels, size, "stretch" if whole else fit, method, colour)


def fitted(
    pixels: Pixels, size: Size, fit: str, method: str, colour: tuple[int, int, int, int]
) -> Pixels:
    """Pixels, or a mask, brought to a size: stretched, cropped in the middle, padded, or inside it.

    `pad` puts bars of `colour` around (0 around a mask); `inside` gives a picture that fits in.
    """
    height, width = pixels.shape[:2]
    if fit == "crop":
        x, y = _crop_margin((width, height), size)
        pixels = pixels[y : height - y, x : width - x]
    if fit in {"stretch", "crop"}:
        return resize(pixels, size, method)
    scale = min(size[0] / width, size[1] / height)
    inner = (max(int(width * scale + 1e-9), 1), max(int(height * scale + 1e-9), 1))
    small = resize(pixels, inner, method)
    if fit == "inside":
        return small
    left, top = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    right, bottom = size[0] - inner[0] - left, size[1] - inner[1] - top
    return padded(small, (left, top, right, bottom), colour)


def _crop_margin(old: Size, new: Size) -> tuple[int, int]:
    """What to cut off left and right, and top and bottom, to get the proportions of `new`."""
    width, height = old
    now, wanted = width / height, new[0] / new[1]
    if now > wanted:
        return min(round((width - width * (wanted / now)) / 2), (width - 1) // 2), 0
    if now < wanted:
        return 0, min(round((height - height * (now / wanted)) / 2), (height - 1) // 2)
    return 0, 0


def padded(
    pixels: Pixels, sides: tuple[int, int, int, int], colour: tuple[int, int, int, int]
) -> Pixels:
    """Pixels with a border of (left, top, right, bottom); around a mask the border is 0.

    A colour that is not opaque gives a picture without alpha an alpha.
    """
    left, top, right, bottom = sides
    height, width = pixels.shape[:2]
    shape = (height + top + bottom, width + left + right)
    if pixels.ndim < RGB:
        whole = np.zeros(shape, np.uint8)
    else:
        channels = RGBA if colour[RGB] < 255 else pixels.shape[2]  # noqa: PLR2004 - opaque
        whole = np.empty((*shape, channels), np.uint8)
        whole[:] = colour[:channels]
    place = whole[top : top + height, left : left + width]
    if pixels.ndim == RGB and pixels.shape[2] < whole.shape[2]:
        place[..., :RGB], place[..., RGB] = pixels, 255
    else:
        place[:] = pixels
    return whole


def cut(pixels: Pixels, box: tuple[int, int, int, int], *, clip: bool) -> Pixels:
    """The part (x, y, width, height) of pixels or a mask, a copy.

    With `clip` what reaches outside is cut off, else refused.
    Raises: InvalidParam naming the part and the picture's size.
    """
    x, y, width, height = box
    whole_height, whole_width = pixels.shape[:2]
    outside = x + width > whole_width or y + height > whole_height
    if x >= whole_width or y >= whole_height or (outside and not clip):
        message = (
            f"{width}x{height} from ({x}, {y}) reaches outside of the {whole_width}x{whole_height} "
            "there is: choose a part inside" + ("" if clip else ", or turn on clip")
        )
        name = "x" if x + width > whole_width else "y"
        raise InvalidParam(message, param=name)
    return pixels[y : y + height, x : x + width].copy()
