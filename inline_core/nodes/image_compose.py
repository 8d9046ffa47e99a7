"""Pictures over, beside and instead of each other."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np

from inline_core.graph.ports import PortKind
from inline_core.media.values import Image, ImageBatch, Mask
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.image_size import Length
from inline_core.nodes.mask_shape import Place
from inline_core.nodes.pixels.batches import as_batch, changed, each, paired
from inline_core.nodes.pixels.blend import MODES
from inline_core.nodes.pixels.blend import blend as blended
from inline_core.nodes.pixels.blend import composite as composited
from inline_core.nodes.pixels.limits import check_size, colour_of
from inline_core.nodes.pixels.resample import RGB, RGBA, Pixels
from inline_core.nodes.pixels.resample import resize as resized
from inline_core.nodes.pixels.sizes import fitted, padded

_IMAGE: Final = (Port(PortKind.IMAGE),)
_MODE_OPTIONS: Final = tuple((name, name.replace("-", " ").capitalize()) for name in MODES)
_DIRECTIONS: Final = tuple((name, name.capitalize()) for name in ("right", "down", "left", "up"))
_BLACK: Final = (0, 0, 0, 255)
_HALF: Final = 128


@node(
    "image/composite",
    title="Composite Images",
    category="Image",
    icon="image",
    outputs=_IMAGE,
    output_kind="image",
)
def composite(
    ctx: NodeContext,
    destination: Image | ImageBatch,
    source: Image | ImageBatch,
    mask: Mask | None = None,
    *,
    x: Place = 0,
    y: Place = 0,
    resize_source: bool = False,
) -> Image | ImageBatch:
    """Put a picture over another, its left top corner at (x, y).

    The mask (255: covers; scaled to the source) and the source's alpha say how much it covers.
    With `resize_source` it is first stretched to the destination, bilinear.  Batches go pairwise.
    Warns when the source lies outside.  Raises: InvalidParam if the batches do not go together.
    """
    results = []
    for below, above in paired(ctx, destination, source, "source"):
        size = (below.width, below.height)
        pixels = resized(above.pixels, size, "bilinear") if resize_source else above.pixels
        height, width = pixels.shape[:2]
        if x >= below.width or y >= below.height or x + width <= 0 or y + height <= 0:
            ctx.warn(
                f"The source lies outside of the {below.width}x{below.height} picture: nothing was "
                "changed."
            )
        cover = None if mask is None else resized(mask.values, (width, height), "bilinear")
        results.append(changed(below, composited(below.pixels, pixels, cover, (x, y))))
    return as_batch(results)


@node(
    "image/grey-out",
    title="Grey Out",
    category="Image",
    icon="image",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
)
def grey_out(ctx: NodeContext, image: Image | ImageBatch, mask: Mask) -> Image | ImageBatch:
    """Make the masked part of pictures grey, so that a model does not see what is there.

    From half white on it counts, as it does for the encoders of inpainting.  The mask is scaled to
    the picture.
    """

    def change(pixels: Pixels) -> Pixels:
        size = (pixels.shape[1], pixels.shape[0])
        values = resized(mask.values, size, "bilinear")  # (height, width)
        made = pixels[..., :RGB].copy()
        made[values >= _HALF] = _HALF
        return made

    return each(ctx, image, change)


@node(
    "image/blend",
    title="Blend Images",
    category="Image",
    icon="image",
    outputs=_IMAGE,
    output_kind="image",
)
def blend(
    ctx: NodeContext,
    first: Image | ImageBatch,
    second: Image | ImageBatch,
    *,
    mode: Annotated[str, Param(options=_MODE_OPTIONS)] = "normal",
    factor: Annotated[float, Param(min=0.0, max=1.0, step=0.01)] = 0.5,
) -> Image | ImageBatch:
    """Blend the second picture into the first, by the modes of W3C's Compositing and Blending.

    The second is brought to the size of the first (bicubic, the middle).  `factor` is how much of
    the blended picture there is.  `subtract` is first - second, `difference` the distance of both.
    """
    return as_batch(
        changed(
            low,
            blended(
                low.pixels,
                fitted(high.pixels, (low.width, low.height), "crop", "bicubic", _BLACK),
                mode,
                factor,
            ),
        )
        for low, high in paired(ctx, first, second, "second")
    )


@node(
    "image/stitch",
    title="Stitch Images",
    category="Image",
    icon="image",
    outputs=_IMAGE,
    output_kind="image",
)
def stitch(
    ctx: NodeContext,
    first: Image | ImageBatch,
    second: Image | ImageBatch,
    *,
    direction: Annotated[str, Param(options=_DIRECTIONS)] = "right",
    match_size: bool = True,
    spacing: Annotated[int, Param(min=0, max=1024, step=1)] = 0,
    colour: Annotated[str, Param(label="Colour of the spacing")] = "#ffffff",
) -> Image | ImageBatch:
    """Put the second picture at a side of the first.

    With `match_size` the second is resized (lanczos) so that the sides that meet are of one
    length, else the smaller one gets black bars.  Raises: InvalidParam.
    """
    between = colour_of(colour, "colour")
    return as_batch(
        changed(one, _stitched(one.pixels, two.pixels, direction, match_size, (spacing, between)))
        for one, two in paired(ctx, first, second, "second")
    )


def _stitched(
    first: Pixels,
    second: Pixels,
    direction: str,
    match_size: bool,
    spacing: tuple[int, tuple[int, int, int, int]],
) -> Pixels:
    along = 1 if direction in {"left", "right"} else 0
    if match_size and second.shape[1 - along] != first.shape[1 - along]:
        scale = first.shape[1 - along] / second.shape[1 - along]
        length = max(int(second.shape[along] * scale + 1e-9), 1)
        sides = [first.shape[1 - along], first.shape[1 - along]]
        sides[1 - along] = length
        second = resized(second, check_size((sides[0], sides[1]), "match_size"), "lanczos")
    gap, colour = spacing
    # Stacked along rows in any case: what stands beside something is turned before and after.
    upper, lower = first, second
    if along:
        upper, lower = upper.swapaxes(0, 1), lower.swapaxes(0, 1)
    if direction in {"left", "up"}:
        upper, lower = lower, upper
    width = max(upper.shape[1], lower.shape[1])
    check_size((width, upper.shape[0] + gap + lower.shape[0]), "direction")
    channels = max(upper.shape[2], lower.shape[2])
    bar = np.empty((gap, width, channels), np.uint8)
    bar[:] = colour[:channels]
    parts = [_of_width(upper, width, channels), bar, _of_width(lower, width, channels)]
    whole = np.concatenate(parts)
    return np.ascontiguousarray(whole.swapaxes(0, 1)) if along else whole


def _of_width(pixels: Pixels, width: int, channels: int) -> Pixels:
    """Pixels in the middle of black bars left and right, with as many channels."""
    if pixels.shape[2] < channels:
        opaque = np.full((*pixels.shape[:2], RGBA - RGB), 255, np.uint8)
        pixels = np.concatenate([pixels, opaque], axis=2)
    left = (width - pixels.shape[1]) // 2
    return padded(pixels, (left, 0, width - pixels.shape[1] - left, 0), _BLACK)


@node(
    "image/solid",
    title="Solid Image",
    category="Image",
    icon="square",
    outputs=_IMAGE,
    output_kind="image",
)
def solid(
    *,
    width: Length = 1024,
    height: Length = 1024,
    colour: str = "#000000",
    count: Annotated[int, Param(min=1, max=4096, step=1)] = 1,
) -> Image | ImageBatch:
    """Give a picture of one colour (`#rrggbb`, or `#rrggbbaa` with alpha), or a batch of them.

    Raises: InvalidParam.
    """
    filling = colour_of(colour, "colour")
    check_size((width, height), "width")
    channels = RGB if filling[RGB] == 255 else RGBA  # noqa: PLR2004 - opaque
    pixels = np.empty((height, width, channels), np.uint8)
    pixels[:] = filling[:channels]
    return as_batch(Image(pixels) for _ in range(count))
