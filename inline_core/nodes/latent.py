"""Latents: empty ones, and the way between pictures and latents."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef
from inline_core.media.values import Image, ImageBatch, Mask
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.sampling.values import Latent

Size = Annotated[int, Param(min=64, max=4096, step=8)]


@node(
    "latent/empty",
    title="Empty Latent",
    category="Latent",
    icon="square",
    outputs=[Port(PortKind.LATENT)],
)
def empty(
    ctx: NodeContext,  # noqa: ARG001
    *,
    width: Size = 1024,
    height: Size = 1024,
    batch: Annotated[int, Param(min=1, max=16, step=1)] = 1,
) -> Latent:
    """Say how large and how many pictures the sampler shall make from pure noise."""
    return Latent(width, height, batch)


@node(
    "vae/encode",
    title="VAE Encode",
    category="VAE",
    icon="square",
    outputs=[Port(PortKind.LATENT)],
    needs=["torch"],
)
def encode(
    ctx: NodeContext,
    vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")],
    image: Image | ImageBatch,
) -> Latent:
    """Turn a picture into latents, to be denoised from there.

    Raises: ModelFileInvalid, InvalidAsset.
    """
    return ctx.render.encode_image(vae, single_image(ctx, image), ctx)


@node(
    "vae/decode",
    title="VAE Decode",
    category="VAE",
    icon="image",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
    needs=["torch"],
)
def decode(
    ctx: NodeContext, vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")], latent: Latent
) -> Image | ImageBatch:
    """Turn latents into pictures; each becomes a take.

    Raises: ModelFileInvalid, NotFinite.
    """
    images = ctx.render.decode(vae, latent, ctx)
    ctx.describe(vae=vae.name)
    return images[0] if len(images) == 1 else ImageBatch(images)


@node(
    "latent/noise-mask",
    title="Set Noise Mask",
    category="Latent",
    icon="square",
    outputs=[Port(PortKind.LATENT)],
)
def noise_mask(ctx: NodeContext, latent: Latent, mask: Mask) -> Latent:
    """Make only the masked part of a picture anew (inpainting); grey keeps a part of what is there.

    The mask is scaled to the latent.  Warns when it is empty, as nothing would change.
    """
    if not mask.values.any():
        ctx.warn("The mask is empty: the sampler will keep the whole picture.")
    return replace(latent, mask=mask.values)


def single_image(ctx: NodeContext, image: Image | ImageBatch) -> Image:
    """The picture, or the first of a batch with a warning that the rest was not used."""
    if isinstance(image, Image):
        return image
    ctx.warn(f"Only the first of {len(image.images)} wired pictures was used.")
    return image.images[0]
