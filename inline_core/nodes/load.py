"""Loaders: they name a component; its weights are read where they are first needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef, LoraRef, Role
from inline_core.nodes.base import NodeContext, Param, Port, node

LoraChain = tuple[LoraRef, ...]


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
) -> ComponentRef:
    """Name a diffusion model; an empty name picks the best one there is.

    Raises: ModelFileMissing, ModelFileInvalid.
    """
    return ctx.components.find(Role.DIFFUSION_MODEL, file)


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
) -> tuple[ComponentRef, ComponentRef, ComponentRef]:
    """Name a checkpoint: its diffusion model, its VAE and its text encoders.

    What is not in the file is what fits best of the files of their own.  An empty name picks the
    best one there is.  Raises: ModelFileMissing, ModelFileInvalid.
    """
    model = ctx.components.find(Role.CHECKPOINT, file)
    return model, vae_for(ctx, model), ctx.components.encoders_for(model)


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
) -> ComponentRef:
    """Name the text encoders of a model, in any order; an empty name picks the best one there is.

    Of models that read their prompts with several, those that are not named are found too.
    Raises: ModelFileMissing, ModelFileInvalid.
    """
    first = ctx.components.find(Role.TEXT_ENCODER, file)
    others = [ctx.components.find(Role.TEXT_ENCODER, name) for name in (file_2, file_3) if name]
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
Strength = Annotated[float, Param(min=-2.0, max=2.0, step=0.05)]
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
