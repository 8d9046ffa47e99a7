"""What the generate nodes of all families share: which pieces are meant, and what is told after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inline_core.loading.component import ComponentRef, LoraRef, Role
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import NodeContext
from inline_core.sampling.values import Latent

Parts = tuple[ComponentRef, ComponentRef, ComponentRef]


def parts_of(
    ctx: NodeContext,
    family: str,
    wired: tuple[ComponentRef | None, ComponentRef | None, ComponentRef | None],
    names: tuple[str, str, str],
    variant: str = "",
    others: Sequence[str] = (),
) -> Parts:
    """Diffusion model, VAE and text encoder: what is wired, else named, else what fits best.

    Of several diffusion models one of `variant` is preferred.  `others` name further text encoders.
    """
    model = wired[0] or ctx.components.find(
        Role.DIFFUSION_MODEL, names[0], family=family, variant=variant
    )
    vae, text_encoder = wired[1], wired[2]
    if vae is None and names[1]:
        vae = ctx.components.find(Role.VAE, names[1], family=family)
    named = [
        ctx.components.find(Role.TEXT_ENCODER, name, family=family)
        for name in (names[2], *others)
        if name
    ]
    if text_encoder is None and named:
        text_encoder = replace(named[0], others=tuple(named[1:]))
    if vae is None:
        vae = ctx.components.companion(Role.VAE, model)
        doubt = ctx.components.doubt(model, vae)
        if doubt:
            ctx.warn(doubt)
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
