"""Loaders: they name a component; its weights are read where they are first needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from inline_core.errors import InvalidParam
from inline_core.families.registry import FAMILIES
from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef, LoraRef, Role
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.sampling.patches import ClipSkip, Shift, with_patch

LoraChain = tuple[LoraRef, ...]
_SCHEDULES = (("family", "As the model was published"), ("comfyui", "As ComfyUI has it"))
Schedule = Annotated[str, Param(options=_SCHEDULES, advanced=True)]


@node(
    "load/diffusion-model",
    title="Load Diffusion Model",
    category="Loaders",
    icon="box",
    outputs=[Port(PortKind.MODEL, "Model")],
)
def diffusion_model(
    ctx: NodeContext,
    *,
    file: Annotated[str, Param(label="Model", options_from="diffusion_models")] = "",
    schedule: Schedule = "family",
) -> ComponentRef:
    """Name a diffusion model; an empty name picks the best one there is.

    `schedule` is the shift of its noise levels where no other node sets one: that of its reference
    implementation, or the fixed one that ComfyUI gives the family.
    Raises: ModelFileMissing, ModelFileInvalid.
    """
    return _scheduled(ctx.components.find(Role.DIFFUSION_MODEL, file), schedule)


@node(
    "load/checkpoint",
    title="Load Checkpoint",
    category="Loaders",
    icon="box",
    outputs=[
        Port(PortKind.MODEL, "Model"),
        Port(PortKind.VAE, "VAE"),
        Port(PortKind.TEXT_ENCODER, "Text encoder"),
    ],
)
def checkpoint(
    ctx: NodeContext,
    *,
    file: Annotated[str, Param(label="Checkpoint", options_from="checkpoints")] = "",
    schedule: Schedule = "family",
) -> tuple[ComponentRef, ComponentRef, ComponentRef]:
    """Name a checkpoint: its diffusion model, its VAE and its text encoders.

    What is not in the file is what fits best of the files of their own.  An empty name picks the
    best one there is.  `schedule` is as for Load Diffusion Model.
    Raises: ModelFileMissing, ModelFileInvalid.
    """
    model = ctx.components.find(Role.CHECKPOINT, file)
    found = vae_for(ctx, model), ctx.components.encoders_for(model)
    return _scheduled(model, schedule), *found


def _scheduled(model: ComponentRef, schedule: str) -> ComponentRef:
    """The model with the shift that ComfyUI gives its family, if that is what is wanted."""
    family = FAMILIES.get(model.family)
    if schedule != "comfyui" or family is None:
        return model
    shift = family.comfyui_shifts.get(model.variant, family.comfyui_shifts.get(""))
    return model if shift is None else with_patch(model, Shift(shift))


@node(
    "model/variant",
    title="Variant of Model",
    category="Loaders",
    icon="box",
    outputs=[Port(PortKind.MODEL, "Model")],
)
def variant(
    model: Annotated[ComponentRef, Port(PortKind.MODEL, "Model")],
    *,
    variant: str = "",
) -> ComponentRef:
    """Say which variant a model is, where its file does not tell (`klein-9b-kv` of FLUX.2).

    Raises: InvalidParam for a variant that it cannot be.
    """
    family = FAMILIES.get(model.family)
    if family is None:
        message = f"{model.name} is of no family that has variants"
        raise InvalidParam(message, port="model")
    return family.as_variant(model, variant)


@node(
    "load/vae-for-model",
    title="VAE of Model",
    category="Loaders",
    icon="box",
    outputs=[Port(PortKind.VAE, "VAE")],
)
def vae_of_model(
    ctx: NodeContext, model: Annotated[ComponentRef, Port(PortKind.MODEL, "Model")]
) -> ComponentRef:
    """Find the VAE that fits a model, with what makes the sound of its videos.

    Raises: ModelFileMissing, ModelFileInvalid.
    """
    return vae_for(ctx, model)


@node(
    "load/clip-skip",
    title="CLIP Skip of Encoder",
    category="Loaders",
    icon="type",
    outputs=[Port(PortKind.TEXT_ENCODER, "Text encoder")],
)
def clip_skip(
    text_encoder: Annotated[ComponentRef, Port(PortKind.TEXT_ENCODER)],
    *,
    layer: Annotated[int, Param(label="Layer from the end", min=1, max=24, step=1)] = 2,
) -> ComponentRef:
    """Let all prompts of a text encoder be what an earlier layer of CLIP makes of them (1: last).

    For Stable Diffusion.
    """
    return replace(text_encoder, patches=(*text_encoder.patches, ClipSkip(layer)))


def vae_for(ctx: NodeContext, model: ComponentRef) -> ComponentRef:
    """The VAE that fits a model best, with a warning where it may be one of another family.

    Raises: ModelFileMissing, ModelFileInvalid.
    """
    found = ctx.components.companion(Role.VAE, model)
    doubt = ctx.components.doubt(model, found)
    if doubt:
        ctx.warn(doubt)
    return found


@node(
    "load/vae",
    title="Load VAE",
    category="Loaders",
    icon="box",
    outputs=[Port(PortKind.VAE, "VAE")],
)
def vae(
    ctx: NodeContext, *, file: Annotated[str, Param(label="VAE", options_from="vae")] = ""
) -> ComponentRef:
    """Name a VAE; an empty name picks the best one there is.

    Raises: ModelFileMissing, ModelFileInvalid.
    """
    return ctx.components.find(Role.VAE, file)


@node(
    "load/text-encoder",
    title="Load Text Encoder",
    category="Loaders",
    icon="box",
    outputs=[Port(PortKind.TEXT_ENCODER, "Text encoder")],
)
def text_encoder(
    ctx: NodeContext,
    *,
    file: Annotated[str, Param(label="Text encoder", options_from="text_encoders")] = "",
    file_2: Annotated[
        str, Param(label="Second text encoder", options_from="text_encoders", advanced=True)
    ] = "",
    file_3: Annotated[
        str, Param(label="Third text encoder", options_from="text_encoders", advanced=True)
    ] = "",
    file_4: Annotated[
        str, Param(label="Fourth text encoder", options_from="text_encoders", advanced=True)
    ] = "",
) -> ComponentRef:
    """Name the text encoders of a model, in any order; an empty name picks the best one there is.

    Of models that read their prompts with several, those that are not named are found too.
    Raises: ModelFileMissing, ModelFileInvalid.
    """
    first = ctx.components.find(Role.TEXT_ENCODER, file)
    names = [name for name in (file_2, file_3, file_4) if name]
    others = [ctx.components.find(Role.TEXT_ENCODER, name) for name in names]
    return replace(first, others=tuple(others))


@node(
    "load/controlnet",
    title="Load ControlNet",
    category="Loaders",
    icon="box",
    outputs=[Port(PortKind.CONTROLNET, "ControlNet")],
)
def controlnet(
    ctx: NodeContext,
    *,
    file: Annotated[str, Param(label="ControlNet", options_from="controlnet")] = "",
) -> ComponentRef:
    """Name a ControlNet; an empty name picks the best one there is.

    Raises: ModelFileMissing, ModelFileInvalid.
    """
    return ctx.components.find(Role.CONTROLNET, file)


_UNMATCHED = (("warn", "Warn when most of it fits"), ("error", "Refuse"))
Strength = Annotated[float, Param(min=-20.0, max=20.0, step=0.05)]
Unmatched = Annotated[str, Param(label="Parts that fit nowhere", options=_UNMATCHED, advanced=True)]


@node(
    "load/lora",
    title="Load LoRA",
    category="Loaders",
    icon="box",
    outputs=[Port(PortKind.LORA, "LoRA")],
    output_kind="lora",
)
def lora(
    ctx: NodeContext,
    lora: Annotated[LoraChain | None, Port(PortKind.LORA, "LoRA")] = None,
    *,
    file: Annotated[str, Param(label="LoRA", options_from="loras")] = "",
    strength: Strength = 1.0,
    unmatched: Unmatched = "warn",
) -> LoraChain:
    """Name an adapter, added to those wired in; the order does not matter.

    Raises: ModelFileMissing, ModelFileInvalid.
    """
    return (*(lora or ()), _found(ctx, file, strength, unmatched))


@node(
    "lora/apply",
    title="Apply LoRA",
    category="Loaders",
    icon="box",
    outputs=[Port(PortKind.MODEL, "Model")],
)
def apply_lora(
    ctx: NodeContext,
    model: Annotated[ComponentRef, Port(PortKind.MODEL, "Model")],
    lora: Annotated[LoraChain | None, Port(PortKind.LORA, "LoRA")] = None,
    *,
    file: Annotated[str, Param(label="LoRA", options_from="loras")] = "",
    strength: Strength = 1.0,
    unmatched: Unmatched = "warn",
) -> ComponentRef:
    """Put adapters on a model: those wired in, and the one that is picked; several add up.

    The order does not matter, and one file picked twice counts with the sum of its strengths.
    Raises: ModelFileMissing, ModelFileInvalid.
    """
    chain = tuple(lora or ())
    if file or not chain:
        chain = (*chain, _found(ctx, file, strength, unmatched))
    return with_adapters(model, chain)


def with_adapters(model: ComponentRef, chain: Sequence[LoraRef]) -> ComponentRef:
    """The model with more adapters, in an order of their own, since none must matter."""
    adapters = (*model.adapters, *chain)
    ordered = sorted(adapters, key=lambda entry: (entry.stamp, entry.name, entry.strength))
    return replace(model, adapters=tuple(ordered))


def _found(ctx: NodeContext, file: str, strength: float, unmatched: str) -> LoraRef:
    reference = ctx.components.find_lora(file, strength)
    return replace(reference, strict=unmatched == "error")
