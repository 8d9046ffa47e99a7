"""Build FLUX.2's transformer from identified files: config from the header, weights streamed in.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers import Flux2Transformer2DModel

from inline_core.families.flux2.denoise import Flux2Denoiser
from inline_core.families.flux2.family import RULES
from inline_core.families.flux2.keys import adapter_targets, transformer_sources
from inline_core.families.flux2.text import encode_prompt, with_references
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.offload import offload
from inline_core.loading.stream import LoadPlan, fill

__all__ = ["adapted_model", "encode_prompt", "load_denoiser", "with_references"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    sources = transformer_sources(plan.logical.tensors, plan.identity.prefix)
    shapes = {
        name: (shape[0] // source.parts, *shape[1:])
        for name, source in sources.items()
        if len(shape := plan.logical.tensors[source.name].shape) == 2  # noqa: PLR2004 - a matrix
    }
    return AdaptedModel(plan.label, RULES.label, adapter_targets(shapes), shapes)


def load_denoiser(plan: LoadPlan) -> Flux2Denoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    with torch.device("meta"):
        model: Any = Flux2Transformer2DModel(**plan.identity.config)
    fill(model, transformer_sources(plan.logical.tensors, plan.identity.prefix), plan)
    offload(model, plan.placement)
    return Flux2Denoiser(model.eval())
