"""Build FLUX.2's transformer from identified files: config from the header, weights streamed in.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from diffusers import Flux2Transformer2DModel
from diffusers.models.transformers.transformer_flux2 import (
    Flux2KVAttnProcessor,
    Flux2KVParallelSelfAttnProcessor,
)

from inline_core.families import transformer
from inline_core.families.flux2.denoise import Flux2Denoiser
from inline_core.families.flux2.family import RULES
from inline_core.families.flux2.keys import TABLE
from inline_core.families.flux2.text import encode, with_references
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser", "with_references"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    return transformer.adapted_model(plan, RULES.label, TABLE)


def load_denoiser(plan: LoadPlan) -> Flux2Denoiser:
    """The diffusion model, ready to predict.

    Its attention can hold reference images apart, and is the usual one where they are not.
    Raises: ModelFileInvalid, RunCancelled.
    """
    model = transformer.load_transformer(plan, Flux2Transformer2DModel, TABLE)
    for block in model.transformer_blocks:
        block.attn.set_processor(Flux2KVAttnProcessor())
    for block in model.single_transformer_blocks:
        block.attn.set_processor(Flux2KVParallelSelfAttnProcessor())
    return Flux2Denoiser(model)
