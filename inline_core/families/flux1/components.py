"""Build FLUX.1's transformer from identified files: config from the header, weights streamed in.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from diffusers import FluxTransformer2DModel

from inline_core.families import transformer
from inline_core.families.flux1.control import load_control
from inline_core.families.flux1.denoise import Flux1Denoiser
from inline_core.families.flux1.family import RULES
from inline_core.families.flux1.keys import TABLE
from inline_core.families.flux1.text import encode, with_references
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_control", "load_denoiser", "with_references"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    return transformer.adapted_model(plan, RULES.label, TABLE)


def load_denoiser(plan: LoadPlan) -> Flux1Denoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    return Flux1Denoiser(transformer.load_transformer(plan, FluxTransformer2DModel, TABLE))
