"""Masks from pictures, and pictures from masks."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np

from inline_core.graph.ports import PortKind
from inline_core.media.values import Image, ImageBatch, Mask
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.image_size import Length
from inline_core.nodes.latent import single_image
from inline_core.nodes.pixels.batches import as_batch, changed, each, pictures_of
from inline_core.nodes.pixels.colour import REC_709
from inline_core.nodes.pixels.limits import check_size, colour_of
from inline_core.nodes.pixels.resample import RGB, RGBA, Pixels, as_bytes
from inline_core.nodes.pixels.resample import resize as resized

_CHANNELS: Final = ("red", "green", "blue", "alpha", "luma")
_CHANNEL_OPTIONS: Final = tuple((name, name.capitalize()) for name in _CHANNELS)
_MASK: Final = (Port(PortKind.MASK),)
Invert = Annotated[bool, Param(label="Invert")]


@node("mask/from-alpha", title="Mask from Alpha", category="Mask", icon="square", outputs=_MASK)
def from_alpha(ctx: NodeContext, image: Image | ImageBatch, *, invert: Invert = False) -> Mask:
    """Give the alpha of a picture as a mask: 255 where it is opaque.

    With `invert` 255 is where it is transparent, which is the mask ComfyUI's Load Image gives.  A
    picture without alpha is opaque everywhere, and is warned about.
    """
    return _channel(ctx, image, "alpha", invert=invert)


@node("mask/from-channel", title="Mask from Channel", category="Mask", icon="square", outputs=_MASK)
def from_channel(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    channel: Annotated[str, Param(options=_CHANNEL_OPTIONS)] = "luma",
    invert: Invert = False,
) -> Mask:
    """Give one channel of a picture, or its luma (Rec. 709), as a mask."""
    return _channel(ctx, image, channel, invert=invert)


@node("mask/from-colour", title="Mask from Colour", category="Mask", icon="square", outputs=_MASK)
def from_colour(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    colour: str = "#00ff00",
    tolerance: Annotated[int, Param(min=0, max=255, step=1)] = 0,
    invert: Invert = False,
) -> Mask:
    """Give a mask of all pixels of a colour, each channel at most `tolerance` (0..255) away.

    Raises: InvalidParam.
    """
    wanted = np.array(colour_of(colour, "colour")[:RGB], np.int16)
    pixels = single_image(ctx, image).pixels[..., :RGB].astype(np.int16)
    here = (np.abs(pixels - wanted) <= tolerance).all(-1)  # (height, width)
    return Mask(np.where(here != invert, np.uint8(255), np.uint8(0)))


@node("mask/solid", title="Solid Mask", category="Mask", icon="square", outputs=_MASK)
def solid(
    *,
    value: Annotated[float, Param(min=0.0, max=1.0, step=0.01)] = 1.0,
    width: Length = 512,
    height: Length = 512,
) -> Mask:
    """Give a mask that is the same everywhere.  Raises: InvalidParam if it would be too large."""
    check_size((width, height), "width")
    return Mask(np.full((height, width), round(value * 255), np.uint8))


@node(
    "mask/to-image",
    title="Mask to Image",
    category="Mask",
    icon="image",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
)
def to_image(mask: Mask) -> Image:
    """Show a mask as a grey picture: white where it is 255."""
    return Image(np.repeat(mask.values[..., None], RGB, axis=2))


@node("mask/invert", title="Invert Mask", category="Mask", icon="square", outputs=_MASK)
def invert(mask: Mask) -> Mask:
    """Swap inside and outside of a mask."""
    return Mask(255 - mask.values)


@node("mask/threshold", title="Threshold Mask", category="Mask", icon="square", outputs=_MASK)
def threshold(
    mask: Mask,
    *,
    value: Annotated[float, Param(min=0.0, max=1.0, step=0.01)] = 0.5,
) -> Mask:
    """Make a mask hard: 255 where it is above `value`, else 0."""
    return Mask(np.where(mask.values > value * 255, np.uint8(255), np.uint8(0)))


@node(
    "image/join-alpha",
    title="Join Image with Alpha",
    category="Image",
    icon="image",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
)
def join_alpha(
    ctx: NodeContext, image: Image | ImageBatch, alpha: Mask, *, invert: Invert = False
) -> Image | ImageBatch:
    """Make a mask the alpha of pictures: opaque where it is 255.  It is scaled to the picture.

    With `invert` the picture is transparent there, as ComfyUI's node of this name does it.
    """
    values = 255 - alpha.values if invert else alpha.values

    def change(
        pixels: Pixels,
    ) -> Pixels:
        own = resized(values, (pixels.shape[1], pixels.shape[0]), "bilinear")
        return np.concatenate([pixels[..., :RGB], own[..., None]], axis=2)

    return each(ctx, image, change)


@node(
    "image/split-alpha",
    title="Split Image and Alpha",
    category="Image",
    icon="image",
    outputs=[Port(PortKind.IMAGE), Port(PortKind.MASK)],
    output_kind="image",
)
def split_alpha(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    invert: Invert = False,
    quiet: Annotated[bool, Param(label="Opaque is fine", advanced=True)] = False,
) -> tuple[Image | ImageBatch, Mask]:
    """Give pictures without their alpha, and the alpha of the first as a mask.

    `invert` makes the mask 255 where the picture is transparent.  A picture without alpha counts as
    opaque, which is warned about unless `quiet` is on.
    """
    first = pictures_of(image)[0].pixels
    if quiet and first.shape[2] < RGBA:
        mask = Mask(np.full(first.shape[:2], 0 if invert else 255, np.uint8))
    else:
        mask = _channel(ctx, image, "alpha", invert=invert)
    return as_batch(_opaque(one) for one in pictures_of(image)), mask


def _opaque(image: Image) -> Image:
    if image.pixels.shape[2] < RGBA:
        return image
    return changed(image, image.pixels[..., :RGB].copy())


def _channel(ctx: NodeContext, image: Image | ImageBatch, channel: str, *, invert: bool) -> Mask:
    pixels = single_image(ctx, image).pixels
    if channel == "luma":
        values = as_bytes(pixels[..., :RGB].astype(np.float32) @ REC_709)  # (height, width)
    elif channel == "alpha" and pixels.shape[2] < RGBA:
        ctx.warn("The picture has no alpha: it counts as opaque everywhere.")
        values = np.full(pixels.shape[:2], 255, np.uint8)
    else:
        values = pixels[..., _CHANNELS.index(channel)].copy()
    return Mask(255 - values if invert else values)
