"""Build Lumina 2's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from diffusers import Lumina2Transformer2DModel

from inline_core.families import transformer
from inline_core.families.key_table import KeyTable
from inline_core.families.lumina2.denoise import Lumina2Denoiser
from inline_core.families.lumina2.family import RULES
from inline_core.families.lumina2.keys import key_table
from inline_core.families.lumina2.text import encode
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    return transformer.adapted_model(plan, RULES.label, _table(plan))


def load_denoiser(plan: LoadPlan) -> Lumina2Denoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    model = transformer.load_transformer(plan, Lumina2Transformer2DModel, _table(plan))
    return Lumina2Denoiser(model)


def _table(plan: LoadPlan) -> KeyTable:
    config = plan.identity.config
    return key_table(config["num_attention_heads"], config["num_kv_heads"])
