"""FLUX.2 in one node, made of the same primitives as any graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef, LoraRef
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.flux2_references import as_reference
from inline_core.nodes.load import with_adapters
from inline_core.nodes.one_click import decoded, parts_of, snapped
from inline_core.nodes.sample import SAMPLERS, SCHEDULERS, Seed, run_job
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Conditioning, Latent

FLUX_2 = "flux-2"
_BASE = "-base"
_VARIANTS = (
    ("klein-4b", "FLUX.2 Klein 4B"),
    ("klein-4b-base", "FLUX.2 Klein 4B Base"),
    ("klein-9b", "FLUX.2 Klein 9B"),
    ("klein-9b-base", "FLUX.2 Klein 9B Base"),
    ("klein-9b-kv", "FLUX.2 Klein 9B KV"),
    ("dev", "FLUX.2 dev"),
)
_NOT_YET = {
    "dev": "it reads its prompts with Mistral",
    "klein-9b-kv": "it keeps what it knows of reference images",
}


@node(
    "black-forest-labs/flux-2",
    title="FLUX.2",
    category="Generate",
    icon="wand",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
    family=FLUX_2,
    needs=["torch"],
)
def flux_2(
    ctx: NodeContext,
    prompt: str,
    model: Annotated[ComponentRef | None, Port(PortKind.MODEL, "Diffusion model")] = None,
    vae: Annotated[ComponentRef | None, Port(PortKind.VAE, "VAE")] = None,
    text_encoder: Annotated[ComponentRef | None, Port(PortKind.TEXT_ENCODER)] = None,
    lora: Annotated[Sequence[LoraRef] | None, Port(PortKind.LORA, "LoRA")] = None,
    image: Annotated[Sequence[Image] | None, Port(PortKind.IMAGES, "Reference image(s)")] = None,
    control_image: Annotated[Image | None, Port(PortKind.CONTROL, "Structure map")] = None,
    character: Annotated[Any, Port(PortKind.CHARACTER, "Character")] = None,
    *,
    negative_prompt: Annotated[
        str, Param(label="Negative prompt (base models only)", widget="textarea")
    ] = "",
    width: Annotated[int, Param(min=256, max=2048, step=64)] = 1024,
    height: Annotated[int, Param(min=256, max=2048, step=64)] = 1024,
    steps: Annotated[int, Param(label="Steps (0 = from model)", min=0, max=100, step=1)] = 0,
    guidance: Annotated[
        float, Param(label="Guidance (-1 = from model)", min=-1.0, max=20.0, step=0.5)
    ] = -1.0,
    sampler: Annotated[str, Param(options=SAMPLERS, advanced=True)] = "euler",
    scheduler: Annotated[str, Param(options=SCHEDULERS, advanced=True)] = "simple",
    controlnet: Annotated[
        str, Param(label="ControlNet (dev only)", options_from="controlnet")
    ] = "",
    control_strength: Annotated[
        float, Param(label="Control strength", min=0.0, max=2.0, step=0.05)
    ] = 0.75,
    seed: Seed = -1,
    variant: Annotated[str, Param(label="Model variant", options=_VARIANTS, advanced=True)] = "",
    model_: Annotated[
        str, Param(label="Diffusion model", options_from="diffusion_models", advanced=True)
    ] = "",
    text_encoder_: Annotated[
        str, Param(label="Text encoder", options_from="text_encoders", advanced=True)
    ] = "",
    vae_: Annotated[str, Param(label="VAE", options_from="vae", advanced=True)] = "",
) -> Image | ImageBatch:
    """Make a picture from a prompt with FLUX.2 klein; it looks at the pictures wired to `image`.

    `variant` says whether a model is a base model, as its file does not: base models take 50 steps
    with guidance 4, the others 4 steps without.  `guidance` above 1 is classifier-free guidance.
    Raises: ModelFileMissing, ModelFileInvalid, InvalidParam, NotFinite, OutOfMemory.
    """
    _refuse(
        character=character is not None,
        controlnet=control_image is not None or bool(controlnet),
        details={"control_strength": control_strength},
    )
    wired, names = (model, vae, text_encoder), (model_, vae_, text_encoder_)
    size = variant.removesuffix(_BASE)
    diffusion, autoencoder, encoder = parts_of(ctx, FLUX_2, wired, names, size)
    diffusion = _of_variant(diffusion, variant)
    usual = ctx.components.defaults_of(diffusion)
    scale = float(usual["guidance"] if guidance < 0 else guidance)
    if lora:
        diffusion = with_adapters(diffusion, lora)
    positive = Conditioning(prompt, encoder)
    ctx.render.encode_text(positive, ctx)
    shown = [ctx.render.encode_image(autoencoder, as_reference(one), ctx) for one in image or ()]
    job = SampleJob(
        model=diffusion,
        positive=replace(positive, references=tuple(shown)),
        negative=Conditioning(negative_prompt, encoder) if scale > 1 else None,
        latent=Latent(snapped(ctx, "width", width), snapped(ctx, "height", height)),
        steps=steps or int(usual["steps"]),
        cfg=max(scale, 1.0),
        sampler=sampler,
        scheduler=scheduler,
        seed=seed,
    )
    latent = run_job(ctx, job).latent
    return decoded(ctx, (diffusion, autoencoder, encoder), latent, prompt, lora)


def _refuse(*, character: bool, controlnet: bool, details: dict[str, Any]) -> None:
    """Raise InvalidParam for what this release does not do."""
    if character:
        message = "Characters are not available for FLUX.2 in this release: unwire 'character'."
        raise InvalidParam(message, port="character")
    if controlnet:
        message = (
            "ControlNet is not available for FLUX.2 in this release: unwire 'control_image' and "
            "clear 'controlnet'."
        )
        raise InvalidParam(message, param="controlnet", details=details)


def _of_variant(model: ComponentRef, variant: str) -> ComponentRef:
    """The model as the variant that the user says it is.  Raises: InvalidParam."""
    for name in (variant, model.variant):
        if name in _NOT_YET:
            message = f"FLUX.2 {name} is not available in this release, as {_NOT_YET[name]}"
            raise InvalidParam(message, param="variant", details={"model": model.name})
    size = variant.removesuffix(_BASE)
    if variant and model.variant not in {"", size}:
        message = f"{model.name} is {model.variant}, not {variant}: pick another model or variant"
        raise InvalidParam(message, param="variant")
    return replace(model, variant=variant) if variant else model
