"""Build Ideogram 4's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from diffusers import Ideogram4Transformer2DModel

from inline_core.families import transformer
from inline_core.families.ideogram4.denoise import Ideogram4Denoiser
from inline_core.families.ideogram4.family import RULES
from inline_core.families.ideogram4.keys import TABLE
from inline_core.families.ideogram4.text import encode
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    return transformer.adapted_model(plan, RULES.label, TABLE)


def load_denoiser(plan: LoadPlan) -> Ideogram4Denoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    return Ideogram4Denoiser(transformer.load_transformer(plan, Ideogram4Transformer2DModel, TABLE))
