"""Blur, sharpen and turn pictures."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np

from inline_core.graph.ports import PortKind
from inline_core.media.recompress import CRF_LIMIT, recompressed
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.mask_shape import Radius, Sigma
from inline_core.nodes.pixels.batches import each
from inline_core.nodes.pixels.filters import blur as blurred
from inline_core.nodes.pixels.filters import sharpen as sharpened

_IMAGE: Final = (Port(PortKind.IMAGE),)
_AXES: Final = (("horizontal", "Left to right"), ("vertical", "Top to bottom"))
_ANGLES: Final = (("90", "90 degrees"), ("180", "180 degrees"), ("270", "270 degrees"))


@node(
    "image/blur",
    title="Blur Image",
    category="Image",
    icon="image",
    outputs=_IMAGE,
    output_kind="image",
)
def blur(
    ctx: NodeContext, image: Image | ImageBatch, *, radius: Radius = 6, sigma: Sigma = 2.0
) -> Image | ImageBatch:
    """Blur pictures with a Gaussian of `sigma` pixels, cut at `radius` pixels; edges mirrored.

    ComfyUI's node counts sigma in radii: its 1.0 at radius 6 is 6 pixels here.
    """
    return each(ctx, image, lambda pixels: blurred(pixels, radius, sigma))


@node(
    "image/sharpen",
    title="Sharpen Image",
    category="Image",
    icon="image",
    outputs=_IMAGE,
    output_kind="image",
)
def sharpen(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    radius: Radius = 3,
    sigma: Sigma = 1.0,
    amount: Annotated[float, Param(min=0.0, max=50.0, step=0.01)] = 0.5,
) -> Image | ImageBatch:
    """Sharpen pictures: `amount` times what a Gaussian blur of them takes away is added.

    ComfyUI's node counts sigma in radii, and its alpha in tenths: 0.1 there is an amount of 1.
    """
    return each(ctx, image, lambda pixels: sharpened(pixels, radius, sigma, amount))


@node(
    "image/recompress",
    title="Compress as a Video",
    category="Image",
    icon="film",
    outputs=_IMAGE,
    output_kind="image",
)
def recompress(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    crf: Annotated[int, Param(label="CRF (0: not at all)", min=0, max=CRF_LIMIT, step=1)] = 33,
) -> Image | ImageBatch:
    """Give pictures the look of a frame of compressed video, from which models like LTX move more.

    The sides get even; transparency is dropped.
    """
    return each(
        ctx, image, lambda pixels: recompressed(np.ascontiguousarray(pixels[:, :, :3]), crf)
    )


@node(
    "image/flip",
    title="Flip Image",
    category="Image",
    icon="image",
    outputs=_IMAGE,
    output_kind="image",
)
def flip(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    axis: Annotated[str, Param(options=_AXES)] = "horizontal",
) -> Image | ImageBatch:
    """Mirror pictures."""
    along = 1 if axis == "horizontal" else 0
    return each(ctx, image, lambda pixels: np.ascontiguousarray(np.flip(pixels, along)))


@node(
    "image/rotate",
    title="Rotate Image",
    category="Image",
    icon="image",
    outputs=_IMAGE,
    output_kind="image",
)
def rotate(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    angle: Annotated[str, Param(label="Clockwise by", options=_ANGLES)] = "90",
) -> Image | ImageBatch:
    """Turn pictures clockwise by quarters, without loss."""
    turns = -int(angle) // 90
    return each(ctx, image, lambda pixels: np.ascontiguousarray(np.rot90(pixels, turns)))
