"""One-click nodes: a whole text-to-image graph in one node, made of the same primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef, LoraRef
from inline_core.media.values import Image, ImageBatch, Mask
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.latent import noise_mask, single_image
from inline_core.nodes.load import with_adapters
from inline_core.nodes.one_click import decoded, parts_of, snapped
from inline_core.nodes.sample import SAMPLERS, SCHEDULERS, Seed, run_job
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Conditioning, Latent

Z_IMAGE = "z-image"


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
    mask: Annotated[Mask | None, Port(PortKind.MASK, "Mask (inpaint)")] = None,
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
    counts it.  `strength` is how much of a wired picture is made anew; with `mask` only there.
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
    wired, names = (model, vae, text_encoder), (model_, vae_, text_encoder_)
    diffusion, autoencoder, encoder = parts_of(ctx, Z_IMAGE, wired, names)
    if lora:
        diffusion = with_adapters(diffusion, lora)
    positive = Conditioning(prompt, encoder)
    ctx.render.encode_text(positive, ctx)
    if mask is not None and image is None:
        message = "a mask needs a picture to keep: wire 'image' too, or unwire 'mask'"
        raise InvalidParam(message, port="mask")
    if image is None:
        latent = Latent(snapped(ctx, "width", width), snapped(ctx, "height", height))
    else:
        latent = ctx.render.encode_image(autoencoder, single_image(ctx, image), ctx)
    if mask is not None:
        latent = noise_mask(ctx, latent, mask)
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
    return decoded(ctx, (diffusion, autoencoder, encoder), result.latent, prompt, lora)
