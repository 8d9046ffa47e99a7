"""The shape of masks: grow, blur, feather, combine, crop and resize them."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.media.values import Image, ImageBatch, Mask
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.image_size import (
    By,
    Clip,
    Factor,
    Fit,
    Length,
    Megapixels,
    Method,
    Multiple,
    Offset,
    Side,
)
from inline_core.nodes.pixels.batches import pictures_of
from inline_core.nodes.pixels.filters import blur as blurred
from inline_core.nodes.pixels.filters import grow as grown
from inline_core.nodes.pixels.limits import MAX_SIDE
from inline_core.nodes.pixels.resample import Pixels
from inline_core.nodes.pixels.sizes import Wanted, cut, resized

_MASK: Final = (Port(PortKind.MASK),)
OPERATIONS: Final = ("multiply", "add", "subtract", "and", "or", "xor")
_OPERATION_OPTIONS: Final = tuple((name, name.capitalize()) for name in OPERATIONS)
_HALF: Final = 128
Place = Annotated[int, Param(min=-MAX_SIDE, max=MAX_SIDE, step=1)]
Radius = Annotated[int, Param(min=1, max=256, step=1)]
Sigma = Annotated[float, Param(min=0.1, max=256.0, step=0.1)]


@node("mask/grow", title="Grow Mask", category="Mask", icon="square", outputs=_MASK)
def grow(
    mask: Mask,
    *,
    expand: Place = 6,
    tapered_corners: bool = True,
) -> Mask:
    """Grow a mask by pixels, or shrink it (negative).

    With tapered corners a square becomes an octagon-like shape (distance in steps up, down, left
    and right), without it stays a square.  Edges of the mask do not eat into it.
    """
    return Mask(grown(mask.values, expand, tapered=tapered_corners))


@node("mask/blur", title="Blur Mask", category="Mask", icon="square", outputs=_MASK)
def blur(
    mask: Mask,
    *,
    radius: Radius = 12,
    sigma: Sigma = 4.0,
) -> Mask:
    """Soften a mask with a Gaussian of `sigma` pixels, cut at `radius` pixels."""
    return Mask(blurred(mask.values, radius, sigma))


@node("mask/feather", title="Feather Mask", category="Mask", icon="square", outputs=_MASK)
def feather(
    mask: Mask,
    *,
    left: Offset = 0,
    top: Offset = 0,
    right: Offset = 0,
    bottom: Offset = 0,
) -> Mask:
    """Let a mask fade out towards edges of the picture, over so many pixels at each side."""
    height, width = mask.values.shape
    across = _ramp(width, left) * _ramp(width, right)[::-1]  # (width,)
    down = _ramp(height, top) * _ramp(height, bottom)[::-1]  # (height,)
    faded = mask.values * down[:, None] * across[None, :]
    return Mask(np.rint(faded).astype(np.uint8))


def _ramp(length: int, reach: int) -> NDArray[np.float32]:
    """From 1 / reach up to 1 within `reach` pixels (at most `length`), then 1."""
    reach = min(reach, length)
    ramp = np.ones(length, np.float32)
    ramp[:reach] = np.arange(1, reach + 1) / max(reach, 1)
    return ramp


@node("mask/combine", title="Combine Masks", category="Mask", icon="square", outputs=_MASK)
def combine(
    ctx: NodeContext,
    destination: Mask,
    source: Mask,
    *,
    operation: Annotated[str, Param(options=_OPERATION_OPTIONS)] = "multiply",
    x: Place = 0,
    y: Place = 0,
) -> Mask:
    """Combine a mask with another that lies on it at (x, y); outside of that one nothing changes.

    `and`, `or` and `xor` make both hard first.  Warns when the other lies outside.
    """
    height, width = destination.values.shape
    left, top = max(x, 0), max(y, 0)
    right = min(x + source.values.shape[1], width)
    bottom = min(y + source.values.shape[0], height)
    result = destination.values.copy()
    if left >= right or top >= bottom:
        ctx.warn(f"The source lies outside of the {width}x{height} mask: nothing was changed.")
        return Mask(result)
    under = result[top:bottom, left:right]
    over = source.values[top - y : bottom - y, left - x : right - x]
    result[top:bottom, left:right] = _combined(under, over, operation)
    return Mask(result)


def _combined(
    under: Pixels,
    over: Pixels,
    operation: str,
) -> Pixels:
    wide, other = under.astype(np.int32), over.astype(np.int32)
    if operation == "multiply":
        result = (wide * other + 127) // 255
    elif operation == "add":
        result = np.minimum(wide + other, 255)
    elif operation == "subtract":
        result = np.maximum(wide - other, 0)
    else:
        one, two = under >= _HALF, over >= _HALF
        result = 255 * {"and": one & two, "or": one | two, "xor": one ^ two}[operation]
    return result.astype(np.uint8)


@node("mask/crop", title="Crop Mask", category="Mask", icon="scissors", outputs=_MASK)
def crop(
    mask: Mask,
    *,
    x: Offset = 0,
    y: Offset = 0,
    width: Length = 512,
    height: Length = 512,
    clip: Clip = False,
) -> Mask:
    """Cut a rectangle out of a mask; (x, y) is its left top corner.

    Raises: InvalidParam if it reaches outside and `clip` is off.
    """
    return Mask(cut(mask.values, (x, y, width, height), clip=clip))


@node("mask/resize", title="Resize Mask", category="Mask", icon="square", outputs=_MASK)
def resize(
    mask: Mask,
    match: Image | ImageBatch | None = None,
    match_mask: Mask | None = None,
    *,
    by: By = "size",
    width: Side = 1024,
    height: Side = 1024,
    side: Side = 1024,
    factor: Factor = 2.0,
    megapixels: Megapixels = 1.0,
    multiple: Multiple = 1,
    fit: Fit = "crop",
    method: Method = "bilinear",
) -> Mask:
    """Resize a mask as Resize Image does it with pictures; bars around it are 0.

    Raises: InvalidParam.
    """
    if match is not None and match_mask is not None:
        message = "only one thing can be matched: wire a picture or a mask, not both"
        raise InvalidParam(message, port="match_mask")
    size = None
    if match is not None:
        size = (pictures_of(match)[0].width, pictures_of(match)[0].height)
    if match_mask is not None:
        size = (match_mask.values.shape[1], match_mask.values.shape[0])
    wanted = Wanted(by, width, height, side, factor, megapixels, multiple, size)
    return Mask(resized(mask.values, wanted, fit, method, (0, 0, 0, 0)))
