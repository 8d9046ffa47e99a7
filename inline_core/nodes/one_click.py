"""What the generate nodes of all families share: which pieces are meant, and what is told after."""

from __future__ import annotations

from collections.abc import Sequence

from inline_core.loading.component import ComponentRef, LoraRef, Role
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import NodeContext
from inline_core.sampling.values import Latent

SIZE_STEP = 16
Parts = tuple[ComponentRef, ComponentRef, ComponentRef]


def parts_of(
    ctx: NodeContext,
    family: str,
    wired: tuple[ComponentRef | None, ComponentRef | None, ComponentRef | None],
    names: tuple[str, str, str],
    variant: str = "",
) -> Parts:
    """Diffusion model, VAE and text encoder: what is wired, else named, else what fits best.

    Of several diffusion models one of `variant` is preferred.
    """
    model = wired[0] or ctx.components.find(
        Role.DIFFUSION_MODEL, names[0], family=family, variant=variant
    )
    vae, text_encoder = wired[1], wired[2]
    if vae is None and names[1]:
        vae = ctx.components.find(Role.VAE, names[1], family=family)
    if text_encoder is None and names[2]:
        text_encoder = ctx.components.find(Role.TEXT_ENCODER, names[2], family=family)
    if vae is None or text_encoder is None:
        fitting_vae, fitting_encoder = ctx.components.companions(model)
        vae = vae or fitting_vae
        text_encoder = text_encoder or fitting_encoder
    return model, vae, text_encoder


def snapped(ctx: NodeContext, name: str, value: int) -> int:
    """The next lower multiple of 16 pixels (latent factor 8, patches of 2)."""
    lower = max(SIZE_STEP, value // SIZE_STEP * SIZE_STEP)
    if lower != value:
        ctx.warn(f"{name} {value} is not a multiple of {SIZE_STEP}; {lower} was used.")
    return lower


def decoded(
    ctx: NodeContext,
    parts: Parts,
    latent: Latent,
    prompt: str,
    lora: Sequence[LoraRef] | None,
) -> Image | ImageBatch:
    """The pictures of a latent, with what their takes shall tell."""
    model, vae, text_encoder = parts
    images = ctx.render.decode(vae, latent, ctx)
    ctx.describe(
        prompt=prompt,
        width=images[0].width,
        height=images[0].height,
        model=model.name,
        vae=vae.name,
        text_encoder=text_encoder.name,
    )
    if lora:
        ctx.describe(loras=[{"file": entry.name, "strength": entry.strength} for entry in lora])
    return images[0] if len(images) == 1 else ImageBatch(images)
