"""Build MiniMax H3's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from diffusers import MiniMaxH3Transformer3DModel

from inline_core.families import transformer
from inline_core.families.minimax_h3.denoise import H3Denoiser
from inline_core.families.minimax_h3.family import RULES
from inline_core.families.minimax_h3.keys import TABLE
from inline_core.families.minimax_h3.text import encode, laid_out, with_references
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "laid_out", "load_denoiser", "with_references"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    return transformer.adapted_model(plan, RULES.label, TABLE)


def load_denoiser(plan: LoadPlan) -> H3Denoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    return H3Denoiser(transformer.load_transformer(plan, MiniMaxH3Transformer3DModel, TABLE))
