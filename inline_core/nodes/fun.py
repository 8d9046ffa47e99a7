"""What Wan Fun goes by: a control video with pictures, or the path of a camera."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final

import numpy as np

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.frames import cut_to
from inline_core.nodes.latent import single_image
from inline_core.nodes.vace import sized
from inline_core.sampling.camera_paths import MOTIONS, camera_numbers, camera_path, lens
from inline_core.sampling.values import Conditioning, Latent

_GROUP: Final = 4  # frames of a latent frame, after the first one
_MOTIONS: Final = tuple((name, motion.label) for name, motion in MOTIONS.items())
_BOTH: Final = (
    Port(PortKind.CONDITIONING, "Positive", id="positive"),
    Port(PortKind.CONDITIONING, "Negative", id="negative"),
)


@node(
    "conditioning/fun-control",
    title="Fun Control Conditioning",
    category="Conditioning",
    icon="film",
    outputs=_BOTH,
    needs=["torch"],
)
def fun_control(
    ctx: NodeContext,
    positive: Annotated[Conditioning, Port(PortKind.CONDITIONING, "Positive")],
    negative: Annotated[Conditioning, Port(PortKind.CONDITIONING, "Negative")],
    vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")],
    latent: Latent,
    video: Annotated[Sequence[Image], Port(PortKind.IMAGES, "Control video")],
    first: Annotated[Image | ImageBatch | None, Port(PortKind.IMAGE, "First frame")] = None,
    image: Annotated[Image | ImageBatch | None, Port(PortKind.IMAGE, "Reference image")] = None,
) -> tuple[Conditioning, Conditioning]:
    """Show Wan Fun Control a video to go by (edges, depth, poses), a first frame, and a picture.

    `latent` says the size; pictures of another shape are cut.  Where the control video is shorter,
    the model is free.  A reference image shows what is to be seen, in no frame in particular; only
    models from V1.1 on look at one.  Models that CLIP tells of a picture see the first frame, else
    the reference image.
    Raises: InvalidParam, ModelFileInvalid.
    """
    control = _control(ctx, vae, latent, video)
    seen = [single_image(ctx, one) for one in (first, image) if one is not None][:1]
    references = [control]
    if first is not None:
        references.append(_first_frame(ctx, vae, latent, first))
    if image is not None:
        shown = _encoded(ctx, vae, latent, image)
        references.append(replace(shown, frames=latent.frames, purpose="subject"))
    return _with(positive, references, seen), _with(negative, references, seen)


@node(
    "conditioning/camera",
    title="Camera Conditioning",
    category="Conditioning",
    icon="film",
    outputs=_BOTH,
    needs=["torch"],
)
def camera(
    ctx: NodeContext,
    positive: Annotated[Conditioning, Port(PortKind.CONDITIONING, "Positive")],
    negative: Annotated[Conditioning, Port(PortKind.CONDITIONING, "Negative")],
    vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")],
    latent: Latent,
    first: Annotated[Image | ImageBatch | None, Port(PortKind.IMAGE, "First frame")] = None,
    *,
    motion: Annotated[str, Param(label="Camera moves", options=_MOTIONS)] = "static",
    speed: Annotated[float, Param(min=0.0, max=10.0, step=0.1)] = 1.0,
    fx: Annotated[
        float, Param(label="Focal length across", min=0.001, max=1.0, step=0.001, advanced=True)
    ] = 0.5,
    fy: Annotated[
        float, Param(label="Focal length down", min=0.001, max=1.0, step=0.001, advanced=True)
    ] = 0.5,
    cx: Annotated[
        float, Param(label="Middle from left", min=0.0, max=1.0, step=0.01, advanced=True)
    ] = 0.5,
    cy: Annotated[
        float, Param(label="Middle from top", min=0.0, max=1.0, step=0.01, advanced=True)
    ] = 0.5,
) -> tuple[Conditioning, Conditioning]:
    """Let the camera of Wan Fun Camera move, from a first frame on; `latent` says the size.

    Focal lengths and the middle are shares of the width and the height of a 16:9 picture.
    Raises: InvalidParam, ModelFileInvalid.
    """
    size = (latent.width, latent.height)
    path = camera_path(MOTIONS[motion], latent.frames, speed)
    numbers = camera_numbers(path, lens(size, (fx, fy), (cx, cy)))
    rows = ctx.render.on_latents("of_numbers", ctx, numbers)
    references = [Latent(*size, samples=rows, frames=latent.frames, purpose="camera")]
    seen = []
    if first is not None:
        references.append(_first_frame(ctx, vae, latent, first))
        seen.append(single_image(ctx, first))
    return _with(positive, references, seen), _with(negative, references, seen)


def _with(
    conditioning: Conditioning, references: Sequence[Latent], seen: Sequence[Image]
) -> Conditioning:
    return replace(conditioning, references=tuple(references), pictures=tuple(seen))


def _control(ctx: NodeContext, vae: ComponentRef, latent: Latent, video: Sequence[Image]) -> Latent:
    """The latents of as many frames as there are, and as a VAE of videos takes."""
    count = min(len(video), latent.frames)
    if not count:
        message = "the control video has no frames: wire edges, depth or poses to go by"
        raise InvalidParam(message, port="video")
    if len(video) > latent.frames:
        ctx.warn(f"Only the first {latent.frames} of {len(video)} frames of the video are used.")
    used = (count - 1) // _GROUP * _GROUP + 1
    if used < latent.frames:
        ctx.warn(f"The control video leads {used} of {latent.frames} frames; the rest is free.")
    size = (latent.width, latent.height)
    pixels = np.stack([sized(one, size) for one in video[:used]])  # (frames, height, width, 3)
    made = _encoded_pixels(ctx, vae, pixels)
    return replace(made, frames=latent.frames, purpose="control")


def _first_frame(
    ctx: NodeContext, vae: ComponentRef, latent: Latent, image: Image | ImageBatch
) -> Latent:
    """Given as the first frame; its latent is the only one, all others are zeros."""
    mask = np.full((latent.frames, 1, 1), 255, np.uint8)
    mask[0] = 0
    return replace(_encoded(ctx, vae, latent, image), mask=mask, frames=latent.frames)


def _encoded(
    ctx: NodeContext, vae: ComponentRef, latent: Latent, image: Image | ImageBatch
) -> Latent:
    """A picture as a video of one frame."""
    fitting = cut_to(ctx, single_image(ctx, image), latent.width, latent.height)
    pixels = fitting.pixels[None].astype(np.float32) / 255.0  # (1, height, width, 3)
    return _encoded_pixels(ctx, vae, pixels)


def _encoded_pixels(ctx: NodeContext, vae: ComponentRef, pixels: np.ndarray) -> Latent:
    made = ctx.render.encode_pixels(vae, pixels, ctx)
    if made.space is None or not made.normalised:
        message = f"the VAE {vae.name} is none of Wan"
        raise InvalidParam(message, port="vae")
    return made
