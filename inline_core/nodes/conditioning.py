"""What a model is given beside a prompt: parts of pictures to fill, choices of its text encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef
from inline_core.media.values import Image, ImageBatch, Mask
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.latent import single_image
from inline_core.nodes.sample import prompt_for
from inline_core.sampling.values import Conditioning, Control, Latent

Percent = Annotated[float, Param(min=0.0, max=1.0, step=0.001)]

_HALF = 128  # masks count from here, as the reference pipelines binarise them


@node(
    "encode/text-with-images",
    title="Encode Text with Images",
    category="Conditioning",
    icon="type",
    outputs=[Port(PortKind.CONDITIONING)],
    needs=["torch"],
)
def encode_with_images(
    ctx: NodeContext,
    text_encoder: Annotated[ComponentRef, Port(PortKind.TEXT_ENCODER)],
    prompt: str,
    images: Annotated[Sequence[Image] | None, Port(PortKind.IMAGES, "Images")] = None,
    *,
    numbered: bool = True,
) -> Conditioning:
    """Encode a prompt with a text encoder that also looks at pictures (Qwen-Image-Edit).

    It sees them in the size they have.  `numbered` calls them Picture 1, 2, ... as Edit-Plus was
    trained; the first Qwen-Image-Edit knows one picture without a number.
    Raises: ModelFileInvalid.
    """
    options = () if numbered else (("one_picture", True),)
    conditioning = prompt_for(text_encoder, prompt, pictures=tuple(images or ()), options=options)
    ctx.render.encode_text(conditioning, ctx)
    return conditioning


@node(
    "conditioning/inpaint",
    title="Fill Conditioning",
    category="Conditioning",
    icon="image",
    outputs=[Port(PortKind.CONDITIONING)],
    needs=["torch"],
)
def inpaint(
    ctx: NodeContext,
    conditioning: Conditioning,
    vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")],
    image: Image | ImageBatch,
    mask: Mask,
) -> Conditioning:
    """Show a model that was trained for it (FLUX.1 Fill) a picture and which part of it to fill.

    The masked part is grey before it is encoded, as the model never sees what is there.  The mask
    must have the size of the picture.
    Raises: InvalidParam, ModelFileInvalid.
    """
    picture = single_image(ctx, image)
    if mask.values.shape != (picture.height, picture.width):
        height, width = mask.values.shape
        message = (
            f"the mask is {width}x{height} and the picture {picture.width}x{picture.height}: "
            "bring them to one size first"
        )
        raise InvalidParam(message, port="mask")
    inside = mask.values >= _HALF  # (height, width)
    pixels = picture.pixels[:, :, :3].astype(np.float32) / 255.0  # (height, width, 3)
    pixels[inside] = 0.5
    latent = ctx.render.encode_pixels(vae, pixels, ctx)
    shown = replace(latent, mask=np.where(inside, np.uint8(255), np.uint8(0)))
    return replace(conditioning, references=(*conditioning.references, shown))


@node(
    "conditioning/controlnet",
    title="Apply ControlNet",
    category="Conditioning",
    icon="image",
    outputs=[
        Port(PortKind.CONDITIONING, "Positive", id="positive"),
        Port(PortKind.CONDITIONING, "Negative", id="negative"),
    ],
)
def controlnet(
    ctx: NodeContext,
    positive: Conditioning,
    negative: Conditioning,
    controlnet: Annotated[ComponentRef, Port(PortKind.CONTROLNET, "ControlNet")],
    image: Annotated[Image | ImageBatch, Port(PortKind.CONTROL, "Control image")],
    vae: Annotated[ComponentRef | None, Port(PortKind.VAE, "VAE")] = None,
    mask: Mask | None = None,
    *,
    strength: Annotated[float, Param(min=0.0, max=10.0, step=0.05)] = 1.0,
    start: Percent = 0.0,
    end: Percent = 1.0,
) -> tuple[Conditioning, Conditioning]:
    """Guide both prompts with a ControlNet and a picture of edges, depth, a pose, or the like.

    It counts from `start` to `end`, shares of the sampling: 0 is pure noise, 1 the end.  Several
    add up.  The picture is brought to the size of the one that is made; ControlNets that look at
    latents (FLUX.1, Qwen-Image, Z-Image) see it through `vae`, or the VAE that fits the model.
    ControlNets for inpainting are shown the picture without what is white in `mask`.
    Raises: InvalidParam.
    """
    added = control_of(ctx, controlnet, image, strength, (start, end), vae)
    if mask is not None:
        added = replace(added, mask=mask.values)
    return (
        replace(positive, controls=(*positive.controls, added)),
        replace(negative, controls=(*negative.controls, added)),
    )


def control_of(
    ctx: NodeContext,
    controlnet: ComponentRef,
    image: Image | ImageBatch,
    strength: float,
    span: tuple[float, float],
    vae: ComponentRef | None = None,
) -> Control:
    """A ControlNet with its picture.  Raises: InvalidParam if it ends before it starts."""
    if span[0] > span[1]:
        message = f"it starts at {span[0]} and ends at {span[1]}: the end must not be first"
        raise InvalidParam(message, param="start")
    return Control(controlnet, single_image(ctx, image), strength, *span, vae=vae)


@node(
    "conditioning/clip-skip",
    title="CLIP Skip",
    category="Conditioning",
    icon="type",
    outputs=[Port(PortKind.CONDITIONING)],
)
def clip_skip(
    conditioning: Conditioning,
    *,
    layer: Annotated[int, Param(label="Layer from the end", min=1, max=12, step=1)] = 2,
) -> Conditioning:
    """Take what an earlier layer of CLIP makes of a prompt (1: the last one, 2: that before it).

    For Stable Diffusion; some models were trained with 2.
    """
    options = dict(conditioning.options) | {"clip_skip": layer}
    return replace(conditioning, options=tuple(sorted(options.items())))


@node(
    "conditioning/guidance",
    title="Guidance Input",
    category="Conditioning",
    icon="sliders",
    outputs=[Port(PortKind.CONDITIONING)],
)
def guidance_input(
    conditioning: Conditioning,
    *,
    guidance: Annotated[float, Param(min=0.0, max=100.0, step=0.1)] = 3.5,
) -> Conditioning:
    """Tell a distilled model its guidance scale; for models that have such an input only.

    The sampler refuses it for others, as `cfg` is what guides them.
    """
    return replace(conditioning, guidance=guidance)


@node(
    "conditioning/reference",
    title="Reference Image",
    category="Conditioning",
    icon="image",
    outputs=[Port(PortKind.CONDITIONING)],
)
def reference(ctx: NodeContext, conditioning: Conditioning, latent: Latent) -> Conditioning:
    """Let a model look at an encoded picture while it makes its own (FLUX.2); several add up.

    The positive conditioning counts.  The sampler refuses it for models that cannot.
    Raises: InvalidParam for an empty latent.
    """
    if latent.samples is None:
        message = "an empty latent shows nothing: wire an encoded picture"
        raise InvalidParam(message, port="latent")
    if latent.batch > 1:
        ctx.warn(f"Only the first of {latent.batch} pictures is looked at.")
    return replace(conditioning, references=(*conditioning.references, latent))
