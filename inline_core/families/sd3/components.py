"""Build Stable Diffusion 3's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any

from diffusers import SD3Transformer2DModel
from torch import nn

from inline_core.families import transformer
from inline_core.families.key_table import KeyTable
from inline_core.families.sd3.denoise import Sd3Denoiser
from inline_core.families.sd3.family import RULES
from inline_core.families.sd3.keys import key_table
from inline_core.families.sd3.text import encode
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    return transformer.adapted_model(plan, RULES.label, _table(plan))


def load_denoiser(plan: LoadPlan) -> Sd3Denoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    return Sd3Denoiser(transformer.load_transformer(plan, _with_positions, _table(plan)))


def _with_positions(**config: Any) -> Any:
    """The model, whose table of positions is filled from the file like any weight.

    It is a buffer that would be computed for one size of training pictures, which no shape tells.
    """
    model = SD3Transformer2DModel(**config)
    patches = model.pos_embed
    table = patches.pos_embed  # (1, places, width)
    del patches.pos_embed
    patches.register_parameter("pos_embed", nn.Parameter(table, requires_grad=False))
    return model


def _table(plan: LoadPlan) -> KeyTable:
    return key_table(plan.identity.config["num_layers"])
