"""Frames that a video begins and ends with, for models that were trained to be given them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from PIL import Image as PillowImage
from PIL import ImageOps

from inline_core.errors import InvalidParam
from inline_core.families.minimax_h3.pictures import as_reference
from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.latent import single_image
from inline_core.sampling.values import Conditioning, Latent

_RESTS = (
    ("grey", "Grey (models from a picture)"),
    ("nothing", "Nothing (Wan 2.2 5B, HunyuanVideo 1.5)"),
)
_SAME_SHAPE = 0.02  # sides that differ less are scaled, not cut


@node(
    "conditioning/frames",
    title="Frames Conditioning",
    category="Conditioning",
    icon="film",
    outputs=[Port(PortKind.CONDITIONING)],
    needs=["torch"],
)
def frames(
    ctx: NodeContext,
    conditioning: Conditioning,
    vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")],
    latent: Latent,
    first: Annotated[Image | ImageBatch | None, Port(PortKind.IMAGE, "First frame")] = None,
    last: Annotated[Image | ImageBatch | None, Port(PortKind.IMAGE, "Last frame")] = None,
    *,
    rest: Annotated[str, Param(label="Frames between", options=_RESTS)] = "grey",
    strength: Annotated[float, Param(min=0.0, max=1.0, step=0.01, advanced=True)] = 1.0,
) -> Conditioning:
    """Give a model the frames that a video begins and ends with; `latent` says its size.

    Pictures are scaled to the video, and cut where its shape is another one.  Models that also look
    at them through CLIP (Wan 2.1) are shown them as they are; with nothing between they are shown
    as they were cut (HunyuanVideo 1.5).
    `strength` below 1 lets the frames change (LTX only).
    Raises: InvalidParam, ModelFileInvalid.
    """
    shown = [single_image(ctx, image) for image in (first, last) if image is not None]
    if not shown or (last is not None and rest == "nothing"):
        message = "wire a first frame, a last one, or both; a model with nothing between takes one"
        raise InvalidParam(message, port="first" if not shown else "last")
    if latent.frames < len(shown):
        message = f"a video of {latent.frames} frames cannot have {len(shown)} given ones"
        raise InvalidParam(message, port="latent")
    count = 1 if rest == "nothing" else latent.frames
    # In -1..1 grey is 0 exactly, which no byte is.
    pixels = np.full((count, latent.height, latent.width, 3), 0.5, np.float32)
    mask = np.full((latent.frames, 1, 1), 255, np.uint8)
    for place, image in ((0, first), (-1, last)):
        if image is not None:
            fitting = _fitted(ctx, single_image(ctx, image), latent.width, latent.height)
            pixels[place] = fitting.astype(np.float32) / 255.0
            mask[place] = 0
            if rest == "nothing":
                shown = [Image(fitting)]
    given = ctx.render.encode_pixels(vae, pixels, ctx)
    given = replace(given, mask=mask, frames=latent.frames, strength=strength)
    return replace(conditioning, references=(given,), pictures=tuple(shown))


@node(
    "conditioning/keyframes",
    title="Keyframes Conditioning",
    category="Conditioning",
    icon="film",
    outputs=[Port(PortKind.CONDITIONING)],
    needs=["torch"],
)
def keyframes(
    ctx: NodeContext,
    conditioning: Conditioning,
    vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")],
    latent: Latent,
    first: Annotated[Image | ImageBatch | None, Port(PortKind.IMAGE, "First frame")] = None,
    last: Annotated[Image | ImageBatch | None, Port(PortKind.IMAGE, "Last frame")] = None,
    *,
    strength: Annotated[float, Param(min=0.0, max=1.0, step=0.01, advanced=True)] = 1.0,
) -> Conditioning:
    """Hold a model to pictures at the ends of a video; `latent` says its size.

    For MiniMax H3, and LTX-2 with a last frame; `strength` below 1 lets the frames change (LTX).

    Each picture is encoded by itself, and the text encoder sees it too.  The first one is stretched
    to the video, the one after it is cut to its shape.
    Raises: InvalidParam without any picture; ModelFileInvalid.
    """
    ends = [(0, first), (-1, last)]
    given = [(place, single_image(ctx, image)) for place, image in ends if image is not None]
    if not given:
        message = "wire a picture that the video begins with, or one that it ends with"
        raise InvalidParam(message, port="image")
    size = (latent.width, latent.height)
    lanczos = PillowImage.Resampling.LANCZOS
    shown, references = [], []
    for index, (place, image) in enumerate(given):
        picture = PillowImage.fromarray(image.pixels[:, :, :3])
        if picture.size != size:
            picture = picture.resize(size, lanczos) if index == 0 else _covering(picture, size)
        pixels = np.asarray(picture)
        mask = np.full((latent.frames, 1, 1), 255, np.uint8)
        mask[place] = 0
        encoded = ctx.render.encode_pixels(vae, pixels, ctx)
        held = replace(encoded, mask=mask, frames=latent.frames, strength=strength)
        references.append(held)
        shown.append(Image(pixels, image.provenance))
    return replace(conditioning, references=tuple(references), pictures=tuple(shown))


@node(
    "conditioning/reference-pictures",
    title="Reference Pictures",
    category="Conditioning",
    icon="image",
    outputs=[Port(PortKind.CONDITIONING)],
    needs=["torch"],
)
def reference_pictures(
    ctx: NodeContext,
    conditioning: Conditioning,
    vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")],
    images: Annotated[Sequence[Image], Port(PortKind.IMAGES, "Images")],
    *,
    short_side: Annotated[int, Param(label="Shorter side", min=32, max=4096, step=32)] = 2048,
) -> Conditioning:
    """Show MiniMax H3 what is to be seen in its video: up to nine pictures, each in its own shape.

    Its text encoder sees them too.  They are scaled so that their shorter side has `short_side`
    pixels, in multiples of 32.
    Raises: InvalidParam for a picture that is narrower than 1:4; ModelFileInvalid.
    """
    shown = tuple(as_reference(image, short_side) for image in images)
    latents = tuple(ctx.render.encode_pixels(vae, image.pixels, ctx) for image in shown)
    return replace(conditioning, references=latents, pictures=shown)


def _covering(picture: PillowImage.Image, size: tuple[int, int]) -> PillowImage.Image:
    """A picture scaled to cover a size and cut around its middle, as MiniMax H3's pipeline does."""
    width, height = size
    scale = max(width / picture.width, height / picture.height)
    large = (max(width, round(picture.width * scale)), max(height, round(picture.height * scale)))
    left, top = (large[0] - width) // 2, (large[1] - height) // 2
    resized = picture.resize(large, PillowImage.Resampling.LANCZOS)
    return resized.crop((left, top, left + width, top + height))


def cut_to(ctx: NodeContext, image: Image, width: int, height: int) -> Image:
    """A picture in the size of a video: scaled, and cut where its shape is another one."""
    return Image(_fitted(ctx, image, width, height), image.provenance)


def _fitted(ctx: NodeContext, image: Image, width: int, height: int) -> np.ndarray:
    """A picture in the size of the video, (height, width, 3) uint8."""
    picture = PillowImage.fromarray(image.pixels[:, :, :3])
    lanczos = PillowImage.Resampling.LANCZOS
    ratio = (image.width / image.height) / (width / height)
    if abs(ratio - 1) <= _SAME_SHAPE:
        return np.asarray(picture.resize((width, height), lanczos))
    ctx.warn(
        f"the picture of {image.width}x{image.height} was cut to the shape of the video "
        f"({width}x{height})."
    )
    return np.asarray(ImageOps.fit(picture, (width, height), lanczos))
