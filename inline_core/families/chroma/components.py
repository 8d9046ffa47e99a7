"""Build Chroma's transformer from identified files: config from the header, weights streamed in.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from diffusers import ChromaTransformer2DModel

from inline_core.families import transformer
from inline_core.families.chroma.denoise import ChromaDenoiser
from inline_core.families.chroma.family import RULES
from inline_core.families.chroma.keys import TABLE
from inline_core.families.chroma.text import encode_prompt
from inline_core.families.encoding import reading_one
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser"]

encode = reading_one(encode_prompt)


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    return transformer.adapted_model(plan, RULES.label, TABLE)


def load_denoiser(plan: LoadPlan) -> ChromaDenoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    return ChromaDenoiser(transformer.load_transformer(plan, ChromaTransformer2DModel, TABLE))
