"""Build HunyuanVideo 1.5's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from inline_core.families import transformer
from inline_core.families.hunyuan_video15.denoise import HunyuanVideo15Denoiser
from inline_core.families.hunyuan_video15.family import RULES
from inline_core.families.hunyuan_video15.keys import TABLE, adapter_targets
from inline_core.families.hunyuan_video15.network import HunyuanVideo15Network
from inline_core.families.hunyuan_video15.text import encode, with_references
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser", "with_references"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    sources = TABLE.sources(plan.logical.tensors, plan.identity.prefix)
    return transformer.adapted(plan, RULES.label, sources, adapter_targets)


def load_denoiser(plan: LoadPlan) -> HunyuanVideo15Denoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    model = transformer.load_transformer(plan, HunyuanVideo15Network, TABLE)
    return HunyuanVideo15Denoiser(model)
