"""Build Z-Image's transformer from identified files: config from the header, weights streamed in.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers import ZImageTransformer2DModel

from inline_core.families import transformer
from inline_core.families.encoding import reading_one
from inline_core.families.z_image.control import load_control
from inline_core.families.z_image.denoise import ZImageDenoiser
from inline_core.families.z_image.family import RULES
from inline_core.families.z_image.keys import IGNORABLE, adapter_targets, transformer_sources
from inline_core.families.z_image.text import encode_prompt
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.offload import offload
from inline_core.loading.stream import LoadPlan, fill

__all__ = ["adapted_model", "encode", "load_control", "load_denoiser"]

encode = reading_one(encode_prompt)


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    sources = transformer_sources(plan.logical.tensors, plan.identity.prefix)
    return transformer.adapted(plan, RULES.label, sources, adapter_targets)


def load_denoiser(plan: LoadPlan) -> ZImageDenoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    with torch.device("meta"):
        model: Any = ZImageTransformer2DModel(**plan.identity.config)
    sources = transformer_sources(plan.logical.tensors, plan.identity.prefix)
    ignorable = [plan.identity.prefix + name for name in IGNORABLE]
    fill(model, sources, plan, ignorable=ignorable)
    offload(model, plan.placement)
    return ZImageDenoiser(model.eval())
