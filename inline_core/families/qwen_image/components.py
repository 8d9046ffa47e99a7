"""Build Qwen-Image's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from diffusers import QwenImageTransformer2DModel

from inline_core.errors import ModelFileInvalid
from inline_core.families import transformer
from inline_core.families.qwen_image.control import load_control
from inline_core.families.qwen_image.denoise import QwenImageDenoiser
from inline_core.families.qwen_image.family import RULES
from inline_core.families.qwen_image.keys import TABLE
from inline_core.families.qwen_image.text import encode, with_references
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_control", "load_denoiser", "with_references"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear."""
    return transformer.adapted_model(plan, RULES.label, TABLE)


def load_denoiser(plan: LoadPlan) -> QwenImageDenoiser:
    """The diffusion model, ready to predict.

    Raises: ModelFileInvalid, also for Layered, which is another network; RunCancelled.
    """
    if plan.identity.config.get("use_layer3d_rope"):
        message = f"{plan.label} is Qwen-Image Layered, which cannot be run here yet"
        raise ModelFileInvalid(message)
    model = transformer.load_transformer(plan, QwenImageTransformer2DModel, TABLE)
    return QwenImageDenoiser(model)
