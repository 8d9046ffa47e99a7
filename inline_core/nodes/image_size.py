"""Resize, crop and pad pictures."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np

from inline_core.families.bria_fibo2 import pictures as fibo_pictures
from inline_core.families.flux1.references import SIZES as KONTEXT_SIZES
from inline_core.graph.ports import PortKind
from inline_core.media.values import Image, ImageBatch, Mask
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.pixels.batches import as_batch, each, one_size, pictures_of
from inline_core.nodes.pixels.limits import MAX_SIDE, check_size, colour_of
from inline_core.nodes.pixels.resample import METHODS, Pixels
from inline_core.nodes.pixels.sizes import (
    Wanted,
    cut,
    fitted,
    padded,
    resized,
)

METHOD_OPTIONS: Final = tuple((name, name.capitalize()) for name in METHODS)
BY_OPTIONS: Final = (
    ("size", "Width and height"),
    ("width", "Width"),
    ("height", "Height"),
    ("longer", "Longer side"),
    ("shorter", "Shorter side"),
    ("factor", "Factor"),
    ("megapixels", "Megapixels"),
    ("match", "Another picture"),
    ("multiple", "Multiple"),
)
FIT_OPTIONS: Final = (
    ("stretch", "Stretch"),
    ("crop", "Crop the middle"),
    ("pad", "Pad"),
    ("inside", "Fit inside"),
)

By = Annotated[str, Param(label="Resize by", options=BY_OPTIONS)]
Fit = Annotated[str, Param(label="If proportions differ", options=FIT_OPTIONS)]
Method = Annotated[str, Param(options=METHOD_OPTIONS)]
Side = Annotated[int, Param(min=0, max=MAX_SIDE, step=1)]
Length = Annotated[int, Param(min=1, max=MAX_SIDE, step=1)]
Offset = Annotated[int, Param(min=0, max=MAX_SIDE, step=1)]
Factor = Annotated[float, Param(min=0.01, max=8.0, step=0.01)]
Megapixels = Annotated[float, Param(min=0.01, max=95.0, step=0.01)]
Multiple = Annotated[int, Param(label="Round to a multiple of", min=1, max=MAX_SIDE, step=1)]
Clip = Annotated[bool, Param(label="Cut off at the edge", advanced=True)]


@node(
    "image/resize",
    title="Resize Image",
    category="Image",
    icon="image",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
)
def resize(
    ctx: NodeContext,
    image: Image | ImageBatch,
    match: Image | ImageBatch | None = None,
    *,
    by: By = "size",
    width: Side = 1024,
    height: Side = 1024,
    side: Side = 1024,
    factor: Factor = 2.0,
    megapixels: Megapixels = 1.0,
    multiple: Multiple = 1,
    fit: Fit = "crop",
    method: Method = "lanczos",
    colour: str = "#000000",
) -> Image | ImageBatch:
    """Resize pictures: to a width and height, by a side, a factor, megapixels, or to a multiple.

    A width or height of 0 follows the other one.  A megapixel is 1024 x 1024 pixels.  `multiple`
    rounds the size; by "Multiple" that is all there is to it, and it is rounded down.
    `nearest-exact`, `bilinear`, `area` and `bicubic` are those of torch, without antialiasing,
    `lanczos` is Pillow's.  Colours are weighted with alpha.  `colour` is that of the bars of `pad`.
    Raises: InvalidParam for a size that is not made, or "Another picture" without one.
    """
    filling = colour_of(colour, "colour")
    target = pictures_of(match)[0] if match is not None else None
    wanted = Wanted(
        by,
        width,
        height,
        side,
        factor,
        megapixels,
        multiple,
        (target.width, target.height) if target is not None else None,
    )
    return each(ctx, image, lambda pixels: resized(pixels, wanted, fit, method, filling))


@node(
    "image/kontext-size",
    title="Resize for FLUX.1 Kontext",
    category="Image",
    icon="image",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
)
def kontext_size(ctx: NodeContext, image: Image | ImageBatch) -> Image | ImageBatch:
    """Bring a picture to the size of nearest proportions that FLUX.1 Kontext was trained on.

    Lanczos, the middle cropped to the proportions.
    """

    def change(
        pixels: Pixels,
    ) -> Pixels:
        ratio = pixels.shape[1] / pixels.shape[0]
        size = min(KONTEXT_SIZES, key=lambda size: abs(ratio - size[0] / size[1]))
        return fitted(pixels, size, "crop", "lanczos", (0, 0, 0, 255))

    return each(ctx, image, change)


@node(
    "image/fibo-size",
    title="Resize for Bria FIBO 2",
    category="Image",
    icon="image",
    outputs=[
        Port(PortKind.IMAGE),
        Port(PortKind.IMAGE, "Seen by the text encoder", id="seen"),
    ],
    output_kind="image",
)
def fibo_size(
    image: Image | ImageBatch, *, width: Side = 0, height: Side = 0
) -> tuple[Image | ImageBatch, Image | ImageBatch]:
    """Give a picture at the size that Bria FIBO 2 edits it at, and as its text encoder sees it.

    A width and height of 0 stand for the size of these proportions that it was trained at.  The
    middle is cropped to the proportions (Lanczos).
    """
    asked = (width, height) if width and height else None
    fitting = [
        fibo_pictures.covering(one, asked or fibo_pictures.trained_size(one.width / one.height))
        for one in pictures_of(image)
    ]
    return as_batch(fitting), as_batch(fibo_pictures.seen(one) for one in fitting)


@node(
    "image/crop",
    title="Crop Image",
    category="Image",
    icon="scissors",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
)
def crop(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    x: Offset = 0,
    y: Offset = 0,
    width: Length = 512,
    height: Length = 512,
    clip: Clip = False,
) -> Image | ImageBatch:
    """Cut a rectangle out of pictures; (x, y) is its left top corner.

    With `clip` a rectangle that reaches outside gives what there is.
    Raises: InvalidParam if it reaches outside.
    """
    return each(ctx, image, lambda pixels: cut(pixels, (x, y, width, height), clip=clip))


@node(
    "image/pad",
    title="Pad Image for Outpainting",
    category="Image",
    icon="square",
    outputs=[Port(PortKind.IMAGE), Port(PortKind.MASK)],
    output_kind="image",
)
def pad(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    left: Offset = 0,
    top: Offset = 0,
    right: Offset = 0,
    bottom: Offset = 0,
    feathering: Annotated[int, Param(min=0, max=MAX_SIDE, step=1)] = 40,
    colour: str = "#808080",
) -> tuple[Image | ImageBatch, Mask]:
    """Put a border around pictures, and give the mask of it (255 where there was nothing).

    Into the picture the mask fades over `feathering` pixels, with the square of the distance; a
    picture that is not twice as large gets a hard edge.  Pictures of a batch must have one size.
    Raises: InvalidParam.
    """
    filling = colour_of(colour, "colour")
    width, height = one_size(image, "image")
    sides = (left, top, right, bottom)
    check_size((width + left + right, height + top + bottom), "left")
    mask = np.full((height + top + bottom, width + left + right), 255, np.uint8)
    mask[top : top + height, left : left + width] = _faded((width, height), sides, feathering)
    return each(ctx, image, lambda pixels: padded(pixels, sides, filling)), Mask(mask)


def _faded(size: tuple[int, int], sides: tuple[int, int, int, int], feathering: int) -> Pixels:
    """The mask (height, width) inside the picture: 255 beside a border, 0 from `feathering` on."""
    width, height = size
    if not feathering or feathering * 2 >= min(size):
        return np.zeros((height, width), np.uint8)
    left, top, right, bottom = sides
    far = np.full(1, feathering)
    rows, columns = np.arange(height), np.arange(width)
    down = np.minimum(rows if top else far, height - rows if bottom else far)
    across = np.minimum(columns if left else far, width - columns if right else far)
    distance = np.minimum(down[:, None], across[None, :])  # (height, width) or less
    share = np.clip((feathering - distance) / feathering, 0, 1) ** 2
    faded = np.rint(share * 255).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(faded, (height, width)))
