"""The colours of pictures."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
from PIL import Image as PillowImage

from inline_core.graph.ports import PortKind
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.pixels.batches import each, pictures_of
from inline_core.nodes.pixels.colour import REC_709, match_colours, statistics_of
from inline_core.nodes.pixels.colour import adjust as adjusted
from inline_core.nodes.pixels.resample import RGB, Pixels, as_bytes

_IMAGE: Final = (Port(PortKind.IMAGE),)
_METHODS: Final = (
    ("reinhard", "Mean and spread (Lab)"),
    ("mkl", "Covariance (Lab)"),
    ("histogram", "Histogram"),
)
_DITHERS: Final = (("none", "None"), ("floyd-steinberg", "Floyd-Steinberg"))
Gain = Annotated[float, Param(min=0.0, max=4.0, step=0.01)]


@node(
    "image/colour-match",
    title="Match Colours",
    category="Image",
    icon="sliders",
    outputs=_IMAGE,
    output_kind="image",
)
def colour_match(
    ctx: NodeContext,
    image: Image | ImageBatch,
    reference: Image | ImageBatch,
    *,
    method: Annotated[str, Param(options=_METHODS)] = "reinhard",
    strength: Annotated[float, Param(min=0.0, max=10.0, step=0.01)] = 1.0,
    together: Annotated[bool, Param(label="Same change for all", advanced=True)] = False,
) -> Image | ImageBatch:
    """Give pictures the colours of a reference.

    Mean and spread in Lab (Reinhard et al. 2001), the whole covariance (linear Monge-Kantorovitch,
    Pitié and Kokaram 2007), or the histograms of R, G and B.

    `strength` 0 changes nothing, 1 is the full effect, more overdoes it.  `together` measures a
    batch as a whole, so that the frames of a video change alike.  Alpha is kept and not looked at.
    """
    wanted = statistics_of([one.pixels for one in pictures_of(reference)])
    pictures = pictures_of(image)
    shared = statistics_of([one.pixels for one in pictures]) if together else None

    def change(pixels: Pixels) -> Pixels:
        own = shared or statistics_of([pixels])
        return match_colours(pixels, own, wanted, method, strength)

    return each(ctx, image, change)


@node(
    "image/adjust",
    title="Adjust Image",
    category="Image",
    icon="sliders",
    outputs=_IMAGE,
    output_kind="image",
)
def adjust(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    brightness: Gain = 1.0,
    contrast: Gain = 1.0,
    saturation: Gain = 1.0,
    gamma: Annotated[float, Param(min=0.1, max=10.0, step=0.01)] = 1.0,
) -> Image | ImageBatch:
    """Change brightness (a factor), contrast (about middle grey), saturation and gamma, in order.

    1 leaves each as it is; a gamma above 1 lightens the middle.
    """
    return each(
        ctx,
        image,
        lambda pixels: adjusted(
            pixels, brightness=brightness, contrast=contrast, saturation=saturation, gamma=gamma
        ),
    )


@node(
    "image/invert",
    title="Invert Image",
    category="Image",
    icon="image",
    outputs=_IMAGE,
    output_kind="image",
)
def invert(ctx: NodeContext, image: Image | ImageBatch) -> Image | ImageBatch:
    """Turn every colour into its opposite; alpha is kept."""
    return each(
        ctx,
        image,
        lambda pixels: np.concatenate([255 - pixels[..., :RGB], pixels[..., RGB:]], axis=2),
    )


@node(
    "image/to-grey",
    title="Image to Grey",
    category="Image",
    icon="image",
    outputs=_IMAGE,
    output_kind="image",
)
def to_grey(ctx: NodeContext, image: Image | ImageBatch) -> Image | ImageBatch:
    """Take the colour out of pictures, leaving luma (Rec. 709); alpha is kept."""

    def change(pixels: Pixels) -> Pixels:
        grey = as_bytes(pixels[..., :RGB].astype(np.float32) @ REC_709)  # (height, width)
        return np.concatenate([np.repeat(grey[..., None], RGB, 2), pixels[..., RGB:]], axis=2)

    return each(ctx, image, change)


@node(
    "image/quantize",
    title="Reduce Colours",
    category="Image",
    icon="image",
    outputs=_IMAGE,
    output_kind="image",
)
def quantize(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    colours: Annotated[int, Param(min=1, max=256, step=1)] = 256,
    dither: Annotated[str, Param(options=_DITHERS)] = "none",
) -> Image | ImageBatch:
    """Leave a picture only so many colours, its own (median cut); alpha is kept."""
    mode = PillowImage.Dither.NONE if dither == "none" else PillowImage.Dither.FLOYDSTEINBERG

    def change(pixels: Pixels) -> Pixels:
        picture = PillowImage.fromarray(np.ascontiguousarray(pixels[..., :RGB]))
        palette = picture.quantize(colours)
        few = picture.quantize(colours, palette=palette, dither=mode).convert("RGB")
        return np.concatenate([np.asarray(few, np.uint8), pixels[..., RGB:]], axis=2)

    return each(ctx, image, change)
