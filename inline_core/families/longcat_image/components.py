"""Build LongCat-Image's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from diffusers import LongCatImageTransformer2DModel

from inline_core.families import transformer
from inline_core.families.longcat_image.denoise import LongCatImageDenoiser
from inline_core.families.longcat_image.family import RULES
from inline_core.families.longcat_image.keys import TABLE
from inline_core.families.longcat_image.text import encode, with_references
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser", "with_references"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    return transformer.adapted_model(plan, RULES.label, TABLE)


def load_denoiser(plan: LoadPlan) -> LongCatImageDenoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    model = transformer.load_transformer(plan, LongCatImageTransformer2DModel, TABLE)
    return LongCatImageDenoiser(model)
