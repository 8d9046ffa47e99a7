"""Pictures for ControlNets that need no model: edges, scribbles, tiles and brightness.

Depth, pose and segmentation need models of their own and are not here.
"""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.pixels.batches import each
from inline_core.nodes.pixels.colour import lab_of
from inline_core.nodes.pixels.edges import canny as canny_edges
from inline_core.nodes.pixels.edges import gradients, grey_of
from inline_core.nodes.pixels.filters import convolve, gaussian, grow, radius_of
from inline_core.nodes.pixels.resample import RGB, Pixels, as_bytes, resize

_IMAGE: Final = (Port(PortKind.IMAGE),)
# A step from black to white along an axis gives a Sobel gradient of 4.
_FULL_STEP: Final = 4.0
_SOURCES: Final = (("luminance", "Luminance (Lab)"), ("intensity", "Largest of R, G and B"))
Threshold = Annotated[float, Param(min=0.01, max=0.99, step=0.01)]
Smooth = Annotated[float, Param(label="Smooth by", min=0.0, max=32.0, step=0.1)]
Inverted = Annotated[bool, Param(label="Dark lines on white")]


@node(
    "image/canny",
    title="Canny Edges",
    category="Control",
    icon="scissors",
    outputs=_IMAGE,
    output_kind="image",
)
def canny(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    low: Threshold = 0.4,
    high: Threshold = 0.8,
) -> Image | ImageBatch:
    """Draw the edges of pictures in white on black, one pixel wide (Canny 1986).

    Edges above `high` count, those above `low` where they are joined to such a one; both are
    lengths of the Sobel gradient for brightness in 0..1, as kornia and ComfyUI have them.
    (Depth, pose and segmentation maps need models of their own; no node here makes them.)
    Raises: InvalidParam if `low` is above `high`.
    """
    if low > high:
        message = f"low {low} is above high {high}: lower it, or raise the other"
        raise InvalidParam(message, param="low")
    return each(ctx, image, lambda pixels: _white(canny_edges(pixels, low, high) * np.uint8(255)))


@node(
    "image/edges",
    title="Soft Edges",
    category="Control",
    icon="scissors",
    outputs=_IMAGE,
    output_kind="image",
)
def edges(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    smooth: Smooth = 1.0,
    strength: Annotated[float, Param(min=0.1, max=20.0, step=0.1)] = 2.0,
    invert: Inverted = False,
) -> Image | ImageBatch:
    """Draw edges as grey lines: the length of the Sobel gradient, times `strength`.

    At 1 a hard step from black to white is white; `smooth` is a Gaussian's sigma in pixels.
    """

    def change(pixels: Pixels) -> Pixels:
        lines = as_bytes(_edge_strength(pixels, smooth) * np.float32(255 * strength))
        return _white(255 - lines if invert else lines)

    return each(ctx, image, change)


@node(
    "image/scribble",
    title="Scribble",
    category="Control",
    icon="scissors",
    outputs=_IMAGE,
    output_kind="image",
)
def scribble(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    smooth: Smooth = 2.0,
    threshold: Threshold = 0.1,
    thickness: Annotated[int, Param(min=0, max=64, step=1)] = 1,
    invert: Inverted = False,
) -> Image | ImageBatch:
    """Draw thick white lines where edges are above `threshold` (1: a hard step, black to white).

    `smooth` is a Gaussian's sigma in pixels, `thickness` what the lines grow by on each side.
    """

    def change(pixels: Pixels) -> Pixels:
        lines = (_edge_strength(pixels, smooth) > threshold) * np.uint8(255)
        lines = grow(lines, thickness, tapered=True)
        return _white(255 - lines if invert else lines)

    return each(ctx, image, change)


@node(
    "image/tile",
    title="Tile Preprocessor",
    category="Control",
    icon="scissors",
    outputs=_IMAGE,
    output_kind="image",
)
def tile(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    factor: Annotated[float, Param(label="Shrink by", min=1.0, max=32.0, step=0.1)] = 4.0,
    smooth: Smooth = 0.0,
) -> Image | ImageBatch:
    """Take the detail out of pictures for a tile ControlNet: shrink (area), grow back (lanczos).

    `smooth` blurs with a Gaussian of that sigma afterwards, in pixels.
    """

    def change(pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        small = (max(round(width / factor), 1), max(round(height / factor), 1))
        plain = resize(resize(pixels[..., :RGB], small, "area"), (width, height), "lanczos")
        return as_bytes(_smoothed(plain.astype(np.float32), smooth))

    return each(ctx, image, change)


@node(
    "image/recolour",
    title="Recolour Preprocessor",
    category="Control",
    icon="scissors",
    outputs=_IMAGE,
    output_kind="image",
)
def recolour(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    source: Annotated[str, Param(label="Brightness", options=_SOURCES)] = "luminance",
    gamma: Annotated[float, Param(min=0.1, max=10.0, step=0.01)] = 1.0,
) -> Image | ImageBatch:
    """Leave only the brightness of pictures, for a ControlNet that gives them new colours.

    It is raised to the power of `gamma`: above 1 darkens.
    """

    def change(pixels: Pixels) -> Pixels:
        if source == "luminance":
            bright = lab_of(pixels[..., :RGB])[..., 0] * np.float32(0.01)  # (height, width)
        else:
            bright = pixels[..., :RGB].max(-1).astype(np.float32)  # (height, width)
            bright *= np.float32(1 / 255)
        curved: NDArray[np.float32] = np.clip(bright, 0, 1) ** np.float32(gamma)
        return _white(as_bytes(curved * np.float32(255)))

    return each(ctx, image, change)


def _edge_strength(pixels: Pixels, smooth: float) -> NDArray[np.float32]:
    """Edges (height, width): 1 at a hard step from black to white."""
    right, down = gradients(_smoothed(grey_of(pixels), smooth))
    length: NDArray[np.float32] = np.hypot(right, down)
    return length * np.float32(1 / _FULL_STEP)


def _smoothed(values: NDArray[np.float32], sigma: float) -> NDArray[np.float32]:
    return convolve(values, gaussian(radius_of(sigma), sigma)) if sigma > 0 else values


def _white(grey: Pixels) -> Pixels:
    return np.repeat(grey[..., None], RGB, axis=2)
