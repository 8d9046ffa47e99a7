"""What the generate nodes of all families share: which pieces are meant, and what is told after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inline_core.loading.component import ComponentRef, LoraRef, Role
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import NodeContext
from inline_core.nodes.load import vae_for
from inline_core.sampling.values import Latent

Parts = tuple[ComponentRef, ComponentRef, ComponentRef]


def parts_of(
    ctx: NodeContext,
    model: ComponentRef,
    wired: tuple[ComponentRef | None, ComponentRef | None],
    vae_name: str,
    encoder_names: Sequence[str],
) -> Parts:
    """A model with its VAE and text encoder: what is wired, else named, else what fits best."""
    vae, text_encoder = wired
    if vae is None:
        vae = (
            ctx.components.find(Role.VAE, vae_name, family=model.family)
            if vae_name
            else vae_for(ctx, model)
        )
    named = [
        ctx.components.find(Role.TEXT_ENCODER, name, family=model.family)
        for name in encoder_names
        if name
    ]
    if text_encoder is None and named:
        text_encoder = replace(named[0], others=tuple(named[1:]))
    return model, vae, ctx.components.encoders_for(model, text_encoder)


def snapped(ctx: NodeContext, name: str, value: int, multiple: int = 16) -> int:
    """The next lower multiple; most models need 16 pixels (latent factor 8, patches of 2)."""
    lower = max(multiple, value // multiple * multiple)
    if lower != value:
        ctx.warn(f"{name} {value} is not a multiple of {multiple}; {lower} was used.")
    return lower


def decoded(
    ctx: NodeContext,
    parts: Parts,
    latent: Latent,
    prompt: str,
    lora: Sequence[LoraRef] | None,
) -> Image | ImageBatch:
    """The pictures of a latent, with what their takes shall tell."""
    images = ctx.render.decode(parts[1], latent, ctx)
    described(ctx, parts, prompt, lora)
    ctx.describe(width=images[0].width, height=images[0].height)
    return images[0] if len(images) == 1 else ImageBatch(images)


def described(ctx: NodeContext, parts: Parts, prompt: str, lora: Sequence[LoraRef] | None) -> None:
    """Tell the takes what they were made with."""
    model, vae, text_encoder = parts
    ctx.describe(
        prompt=prompt,
        model=model.name,
        vae=vae.name,
        text_encoder=", ".join(item.name for item in text_encoder.all),
    )
    if lora:
        ctx.describe(loras=[{"file": entry.name, "strength": entry.strength} for entry in lora])
