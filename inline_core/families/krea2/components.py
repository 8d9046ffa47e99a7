"""Build Krea 2's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from diffusers import Krea2Transformer2DModel

from inline_core.families import transformer
from inline_core.families.encoding import reading_one
from inline_core.families.krea2.denoise import Krea2Denoiser
from inline_core.families.krea2.family import RULES
from inline_core.families.krea2.keys import TABLE
from inline_core.families.krea2.text import encode_prompt
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser"]

encode = reading_one(encode_prompt)


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    return transformer.adapted_model(plan, RULES.label, TABLE)


def load_denoiser(plan: LoadPlan) -> Krea2Denoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    return Krea2Denoiser(transformer.load_transformer(plan, Krea2Transformer2DModel, TABLE))
