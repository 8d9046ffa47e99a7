"""What Wan VACE is shown: a video to go by, which part of it is made anew, and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef
from inline_core.media.values import Image, ImageBatch, Mask
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.pixels.resample import RGB
from inline_core.nodes.pixels.resample import resize as resized
from inline_core.nodes.pixels.sizes import fitted
from inline_core.sampling.values import Conditioning, Latent

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FRAMES: Final = 4  # of a latent frame
_HALF: Final = 128


@node(
    "conditioning/vace",
    title="VACE Conditioning",
    category="Conditioning",
    icon="film",
    outputs=[
        Port(PortKind.CONDITIONING, "Positive", id="positive"),
        Port(PortKind.CONDITIONING, "Negative", id="negative"),
        Port(PortKind.LATENT),
        Port(PortKind.NUMBER, "Latent frames to trim", id="trim"),
    ],
    needs=["torch"],
)
def vace(
    ctx: NodeContext,
    positive: Annotated[Conditioning, Port(PortKind.CONDITIONING, "Positive")],
    negative: Annotated[Conditioning, Port(PortKind.CONDITIONING, "Negative")],
    vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")],
    latent: Latent,
    video: Annotated[Sequence[Image] | None, Port(PortKind.IMAGES, "Video")] = None,
    mask: Mask | None = None,
    image: Annotated[Image | ImageBatch | None, Port(PortKind.IMAGE, "Reference image")] = None,
    *,
    strength: Annotated[float, Param(min=0.0, max=10.0, step=0.01)] = 1.0,
) -> tuple[Conditioning, Conditioning, Latent, int]:
    """Show Wan VACE a video (edges, depth, frames that stay), a mask, and a picture of the subject.

    `latent` says the size.  The masked part (white) is made anew, all of it without a mask; a video
    that is shorter goes on in grey.  A reference picture stands before the video: its latent frame
    is trimmed off after sampling.
    Raises: InvalidParam, ModelFileInvalid.
    """
    size = (latent.width, latent.height)
    frames = [sized(one, size) for one in (video or ())[: latent.frames]]
    if video and len(video) > latent.frames:
        ctx.warn(f"Only the first {latent.frames} of {len(video)} frames of the video are used.")
    grey = np.full((latent.height, latent.width, RGB), 0.5, np.float32)
    frames += [grey] * (latent.frames - len(frames))
    shown = np.stack(frames)  # (frames, height, width, 3) float32 in 0..1
    hard = _hard_mask(mask, latent)  # (frames, height, width) of 0 and 255
    inside = hard[..., None] > 0  # (frames, height, width, 1)
    without = ctx.render.encode_pixels(vae, np.where(inside, 0.5, shown).astype(np.float32), ctx)
    within = ctx.render.encode_pixels(vae, np.where(inside, shown, 0.5).astype(np.float32), ctx)
    if without.space is None or not without.normalised:
        message = f"the VAE {vae.name} is none of Wan"
        raise InvalidParam(message, port="vae")
    pictures = [] if image is None else [image] if isinstance(image, Image) else [image.images[0]]
    still = [ctx.render.encode_pixels(vae, sized(one, size), ctx).samples for one in pictures]
    before = still[0] if still else None
    control = ctx.render.on_latents(
        "vace_control", ctx, without.samples, within.samples, before, hard
    )
    longer = replace(latent, frames=latent.frames + len(still) * _FRAMES)
    held = replace(
        without, samples=control, frames=longer.frames, strength=strength, purpose="vace"
    )
    return (
        replace(positive, references=(held,)),
        replace(negative, references=(held,)),
        longer,
        len(still),
    )


def sized(image: Image, size: tuple[int, int]) -> NDArray[np.float32]:
    """A picture cut to the size of the video, (height, width, 3) in 0..1."""
    pixels = fitted(image.pixels[..., :RGB], size, "crop", "bilinear", (0, 0, 0, 255))
    return pixels[..., :RGB].astype(np.float32) / 255.0


def _hard_mask(mask: Mask | None, latent: Latent) -> NDArray[np.uint8]:
    """The mask of each frame, (frames, height, width) of 0 and 255."""
    shape = (latent.frames, latent.height, latent.width)
    if mask is None:
        return np.full(shape, 255, np.uint8)
    values = resized(mask.values, (latent.width, latent.height), "bilinear")
    hard = np.where(values >= _HALF, np.uint8(255), np.uint8(0))
    return np.ascontiguousarray(np.broadcast_to(hard, shape))
