"""Build Z-Image's transformer from identified files: config from the header, weights streamed in.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers import ZImageTransformer2DModel

from inline_core.families.z_image.denoise import ZImageDenoiser
from inline_core.families.z_image.family import RULES
from inline_core.families.z_image.keys import IGNORABLE, adapter_targets, transformer_sources
from inline_core.families.z_image.text import encode_prompt
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.offload import offload
from inline_core.loading.stream import LoadPlan, fill

__all__ = ["adapted_model", "encode_prompt", "load_denoiser"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    sources = transformer_sources(plan.logical.tensors, plan.identity.prefix)
    shapes = {
        name: (shape[0] // source.parts, *shape[1:])
        for name, source in sources.items()
        if len(shape := plan.logical.tensors[source.name].shape) == 2  # noqa: PLR2004 - a matrix
    }
    return AdaptedModel(plan.label, RULES.label, adapter_targets(shapes), shapes)


def load_denoiser(plan: LoadPlan) -> ZImageDenoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    with torch.device("meta"):
        model: Any = ZImageTransformer2DModel(**plan.identity.config)
    sources = transformer_sources(plan.logical.tensors, plan.identity.prefix)
    ignorable = [plan.identity.prefix + name for name in IGNORABLE]
    fill(model, sources, plan, ignorable=ignorable)
    offload(model, plan.placement)
    return ZImageDenoiser(model.eval())
