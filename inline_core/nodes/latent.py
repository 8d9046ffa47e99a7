"""Latents: empty ones, and the way between pictures and latents."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef
from inline_core.media.values import Clip, Image, ImageBatch, Mask, Waveform
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.sampling.values import Latent

Size = Annotated[int, Param(min=16, max=16384, step=8)]
Batch = Annotated[int, Param(min=1, max=64, step=1)]


@node(
    "latent/empty",
    title="Empty Latent",
    category="Latent",
    icon="square",
    outputs=[Port(PortKind.LATENT)],
)
def empty(
    *,
    width: Size = 1024,
    height: Size = 1024,
    batch: Batch = 1,
) -> Latent:
    """Say how large and how many pictures the sampler shall make from pure noise."""
    return Latent(width, height, batch)


@node(
    "vae/encode",
    title="VAE Encode",
    category="VAE",
    icon="square",
    outputs=[Port(PortKind.LATENT)],
    needs=["torch"],
)
def encode(
    ctx: NodeContext,
    vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")],
    image: Image | ImageBatch,
) -> Latent:
    """Turn pictures into latents, to be denoised from there; with a VAE of videos, into a video.

    What is beyond a multiple of the VAE's factor is cut off around the middle, and frames that make
    no whole latent frame at the end.
    Raises: ModelFileInvalid, InvalidAsset, InvalidParam for pictures of different sizes.
    """
    if isinstance(image, Image):
        return ctx.render.encode_all(vae, [image], ctx)
    return ctx.render.encode_all(vae, image.images, ctx)


@node(
    "vae/decode",
    title="VAE Decode",
    category="VAE",
    icon="image",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
    needs=["torch"],
)
def decode(
    ctx: NodeContext, vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")], latent: Latent
) -> Image | ImageBatch:
    """Turn latents into pictures; each becomes a take.  Of a video, into its frames.

    Raises: ModelFileInvalid, NotFinite.
    """
    if latent.frames > 1:
        clips = ctx.render.decode_clips(vae, latent, ctx)
        images = tuple(
            Image(frame, dict(clip.provenance)) for clip in clips for frame in clip.frames
        )
    else:
        images = ctx.render.decode(vae, latent, ctx)
    ctx.describe(vae=vae.name)
    return images[0] if len(images) == 1 else ImageBatch(images)


@node(
    "latent/empty-video",
    title="Empty Video Latent",
    category="Latent",
    icon="film",
    outputs=[Port(PortKind.LATENT)],
)
def empty_video(
    *,
    width: Size = 832,
    height: Size = 480,
    frames: Annotated[int, Param(min=1, max=2000, step=1)] = 81,
    fps: Annotated[float, Param(label="Frames a second", min=1.0, max=120.0, step=1.0)] = 16.0,
    batch: Batch = 1,
) -> Latent:
    """Say how large and long a video the sampler shall make from pure noise."""
    return Latent(width, height, batch, frames=frames, fps=fps)


@node(
    "vae/decode-video",
    title="Decode Video",
    category="VAE",
    icon="film",
    outputs=[Port(PortKind.VIDEO)],
    output_kind="video",
    needs=["torch"],
)
def decode_video(
    ctx: NodeContext,
    vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")],
    latent: Latent,
    *,
    fps: Annotated[
        float, Param(label="Frames a second (0 = as sampled)", min=0.0, max=120.0, step=0.5)
    ] = 0.0,
) -> Clip:
    """Turn the latents of a video into a video without sound.

    Raises: ModelFileInvalid, InvalidParam, NotFinite.
    """
    wanted = replace(latent, fps=fps) if fps else latent
    clips = ctx.render.decode_clips(vae, wanted, ctx)
    if len(clips) > 1:
        ctx.warn(f"Only the first of {len(clips)} videos is given.")
    ctx.describe(vae=vae.name)
    return clips[0]


@node(
    "latent/empty-audio",
    title="Empty Audio Latent",
    category="Latent",
    icon="audio-lines",
    outputs=[Port(PortKind.LATENT)],
)
def empty_audio(
    *,
    seconds: Annotated[float, Param(min=0.1, max=600.0, step=0.1)] = 60.0,
    batch: Batch = 1,
    rate: Annotated[
        float, Param(label="Latents a second", min=1.0, max=100.0, step=0.5, advanced=True)
    ] = 25.0,
) -> Latent:
    """Say how long and how many sounds the sampler shall make from pure noise.

    The length is rounded up to whole latents; `rate` is that of the model (ACE-Step: 25).
    """
    return sound_latent(seconds, rate, batch)


def sound_latent(seconds: float, rate_hz: float, batch: int = 1) -> Latent:
    """The empty latent of a sound, whole latents of `rate_hz` a second; it has no size."""
    return Latent(1, 1, batch, frames=max(math.ceil(seconds * rate_hz), 1), fps=rate_hz)


@node(
    "vae/decode-audio",
    title="Decode Audio",
    category="VAE",
    icon="audio-lines",
    outputs=[Port(PortKind.AUDIO)],
    output_kind="audio",
    needs=["torch"],
)
def decode_audio(
    ctx: NodeContext, vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")], latent: Latent
) -> Waveform:
    """Turn the latents of a sound into a sound.

    Raises: ModelFileInvalid, InvalidParam, NotFinite.
    """
    sounds = ctx.render.decode_sounds(vae, latent, ctx)
    if len(sounds) > 1:
        ctx.warn(f"Only the first of {len(sounds)} sounds is given.")
    ctx.describe(vae=vae.name)
    return sounds[0]


@node(
    "latent/noise-mask",
    title="Set Noise Mask",
    category="Latent",
    icon="square",
    outputs=[Port(PortKind.LATENT)],
)
def noise_mask(ctx: NodeContext, latent: Latent, mask: Mask) -> Latent:
    """Make only the masked part of a picture anew (inpainting); grey keeps a part of what is there.

    The mask is scaled to the latent.  Warns when it is empty, as nothing would change.
    """
    if not mask.values.any():
        ctx.warn("The mask is empty: the sampler will keep the whole picture.")
    return replace(latent, mask=mask.values)


def single_image(ctx: NodeContext, image: Image | ImageBatch) -> Image:
    """The picture, or the first of a batch with a warning that the rest was not used."""
    if isinstance(image, Image):
        return image
    ctx.warn(f"Only the first of {len(image.images)} wired pictures was used.")
    return image.images[0]
