"""Loaders: they name a component; its weights are read where they are first needed."""

from __future__ import annotations

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
) -> ComponentRef:
    """Name a text encoder; an empty name picks the best one there is.

    Raises: ModelFileMissing, ModelFileInvalid.
    """
    return ctx.components.find(Role.TEXT_ENCODER, file)


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
    strength: Annotated[float, Param(min=-2.0, max=2.0, step=0.05)] = 1.0,
) -> LoraChain:
    """Name an adapter, added to those wired in; the order does not matter.

    Raises: ModelFileMissing, ModelFileInvalid.
    """
    return (*(lora or ()), ctx.components.find_lora(file, strength))
