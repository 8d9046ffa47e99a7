"""Enlarge pictures with a model."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from inline_core.graph.ports import PortKind
from inline_core.loading.component import Role
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.pixels.batches import as_batch, changed, pictures_of
from inline_core.nodes.pixels.resample import RGB, resize


@node(
    "image/upscale-model",
    title="Upscale with Model",
    category="Image",
    icon="wand",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
    needs=["torch"],
)
def upscale_model(
    ctx: NodeContext,
    image: Image | ImageBatch,
    *,
    model: Annotated[str, Param(options_from="upscale_models")] = "",
    tile: Annotated[int, Param(min=64, max=4096, step=32, advanced=True)] = 512,
    overlap: Annotated[int, Param(min=0, max=512, step=8, advanced=True)] = 32,
) -> Image | ImageBatch:
    """Enlarge pictures with an upscaler (ESRGAN, Real-ESRGAN) by the factor it was made for.

    Pictures above `tile` pixels a side are done in tiles that overlap, which bounds the memory.
    Alpha is enlarged with lanczos.  Other architectures need the extra `upscale` (spandrel).
    Raises: ModelFileMissing, ModelFileInvalid, InvalidParam for a result that would be too large,
    NotFinite, OutOfMemory, RuntimeMissing.
    """
    upscaler = ctx.components.find(Role.UPSCALER, model)
    results = []
    for one in pictures_of(image):
        ctx.check_cancelled()
        large: Image = ctx.render.upscale(upscaler, one, ctx, tile=tile, overlap=overlap)
        pixels = large.pixels
        if one.pixels.shape[2] > RGB:
            alpha = np.ascontiguousarray(one.pixels[..., RGB])
            own = resize(alpha, (large.width, large.height), "lanczos")
            pixels = np.concatenate([pixels, own[..., None]], axis=2)
        results.append(changed(large, pixels))
    ctx.describe(upscaler=upscaler.name)
    return as_batch(results)
