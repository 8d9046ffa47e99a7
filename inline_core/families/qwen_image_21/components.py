"""Build Qwen-Image 2.1's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from diffusers import QwenImage21Transformer2DModel

from inline_core.families import transformer
from inline_core.families.qwen_image_21.denoise import QwenImage21Denoiser
from inline_core.families.qwen_image_21.family import RULES
from inline_core.families.qwen_image_21.keys import TABLE
from inline_core.families.qwen_image_21.text import encode, with_references
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser", "with_references"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    return transformer.adapted_model(plan, RULES.label, TABLE)


def load_denoiser(plan: LoadPlan) -> QwenImage21Denoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    model = transformer.load_transformer(plan, QwenImage21Transformer2DModel, TABLE)
    return QwenImage21Denoiser(model)
