"""One-click nodes: a whole text-to-image graph in one node, made of the same primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef, LoraRef, Role
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.latent import single_image
from inline_core.nodes.load import with_adapters
from inline_core.nodes.sample import SAMPLERS, SCHEDULERS, Seed, run_job
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Conditioning, Latent

Z_IMAGE = "z-image"
_SIZE_STEP = 16


@node(
    "alibaba/z-image-turbo",
    title="Z-Image Turbo",
    category="Generate",
    icon="wand",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
    family=Z_IMAGE,
    needs=["torch"],
)
def z_image_turbo(
    ctx: NodeContext,
    prompt: str,
    model: Annotated[ComponentRef | None, Port(PortKind.MODEL, "Diffusion model")] = None,
    vae: Annotated[ComponentRef | None, Port(PortKind.VAE, "VAE")] = None,
    text_encoder: Annotated[ComponentRef | None, Port(PortKind.TEXT_ENCODER)] = None,
    lora: Annotated[Sequence[LoraRef] | None, Port(PortKind.LORA, "LoRA")] = None,
    image: Annotated[Image | ImageBatch | None, Port(PortKind.IMAGE, "Image (img2img)")] = None,
    control_image: Annotated[Image | None, Port(PortKind.CONTROL, "Control")] = None,
    *,
    negative_prompt: Annotated[str, Param(widget="textarea")] = "",
    width: Annotated[int, Param(min=64, max=4096, step=64, variant_default="width")] = 1024,
    height: Annotated[int, Param(min=64, max=4096, step=64, variant_default="height")] = 1024,
    steps: Annotated[int, Param(min=1, max=100, step=1, variant_default="steps")] = 8,
    guidance: Annotated[
        float,
        Param(label="Guidance (CFG)", min=0.0, max=20.0, step=0.5, variant_default="guidance"),
    ] = 0.0,
    sampler: Annotated[str, Param(options=SAMPLERS, advanced=True)] = "euler",
    scheduler: Annotated[str, Param(options=SCHEDULERS, advanced=True)] = "simple",
    strength: Annotated[
        float, Param(label="Denoise strength", min=0.0, max=1.0, step=0.05, advanced=True)
    ] = 0.6,
    controlnet: Annotated[str, Param(label="ControlNet", options_from="controlnet")] = "",
    controlnet_conditioning_scale: Annotated[
        float, Param(label="Control strength", min=0.0, max=2.0, step=0.05)
    ] = 1.0,
    seed: Seed = -1,
    model_: Annotated[
        str, Param(label="Diffusion model", options_from="diffusion_models", advanced=True)
    ] = "",
    text_encoder_: Annotated[
        str, Param(label="Text encoder", options_from="text_encoders", advanced=True)
    ] = "",
    vae_: Annotated[str, Param(label="VAE", options_from="vae", advanced=True)] = "",
) -> Image | ImageBatch:
    """Make a picture from a prompt with Z-Image; with `image` wired, from that picture.

    `guidance` g is classifier-free guidance of scale 1 + g (0: none), as the reference pipeline
    counts it.  `strength` is how much of a wired picture is made anew.
    Raises: ModelFileMissing, ModelFileInvalid, InvalidParam, NotFinite, OutOfMemory.
    """
    if control_image is not None or controlnet:
        message = (
            "ControlNet is not available for Z-Image in this release: unwire 'control_image' and "
            "clear 'controlnet'."
        )
        raise InvalidParam(
            message, param="controlnet", details={"scale": controlnet_conditioning_scale}
        )
    parts = _parts(ctx, (model, vae, text_encoder), (model_, vae_, text_encoder_))
    diffusion, autoencoder, encoder = parts
    if lora:
        diffusion = with_adapters(diffusion, lora)
    positive = Conditioning(prompt, encoder)
    ctx.render.encode_text(positive, ctx)
    if image is None:
        latent = Latent(_snapped(ctx, "width", width), _snapped(ctx, "height", height))
    else:
        latent = ctx.render.encode_image(autoencoder, single_image(ctx, image), ctx)
    job = SampleJob(
        model=diffusion,
        positive=positive,
        negative=Conditioning(negative_prompt, encoder) if guidance > 0 else None,
        latent=latent,
        steps=steps,
        cfg=1.0 + guidance,
        sampler=sampler,
        scheduler=scheduler,
        seed=seed,
        denoise=1.0 if image is None else strength,
    )
    result = run_job(ctx, job)
    images = ctx.render.decode(autoencoder, result.latent, ctx)
    ctx.describe(
        prompt=prompt,
        width=images[0].width,
        height=images[0].height,
        model=diffusion.name,
        vae=autoencoder.name,
        text_encoder=encoder.name,
    )
    if lora:
        ctx.describe(loras=[{"file": entry.name, "strength": entry.strength} for entry in lora])
    return images[0] if len(images) == 1 else ImageBatch(images)


def _parts(
    ctx: NodeContext,
    wired: tuple[ComponentRef | None, ComponentRef | None, ComponentRef | None],
    names: tuple[str, str, str],
) -> tuple[ComponentRef, ComponentRef, ComponentRef]:
    """Diffusion model, VAE and text encoder: what is wired, else named, else what fits best."""
    model = wired[0] or ctx.components.find(Role.DIFFUSION_MODEL, names[0], family=Z_IMAGE)
    vae, text_encoder = wired[1], wired[2]
    if vae is None and names[1]:
        vae = ctx.components.find(Role.VAE, names[1], family=Z_IMAGE)
    if text_encoder is None and names[2]:
        text_encoder = ctx.components.find(Role.TEXT_ENCODER, names[2], family=Z_IMAGE)
    if vae is None or text_encoder is None:
        fitting_vae, fitting_encoder = ctx.components.companions(model)
        vae = vae or fitting_vae
        text_encoder = text_encoder or fitting_encoder
    return model, vae, text_encoder


def _snapped(ctx: NodeContext, name: str, value: int) -> int:
    """The next lower multiple of 16 pixels (latent factor 8, patches of 2)."""
    snapped = max(_SIZE_STEP, value // _SIZE_STEP * _SIZE_STEP)
    if snapped != value:
        ctx.warn(f"{name} {value} is not a multiple of {_SIZE_STEP}; {snapped} was used.")
    return snapped
