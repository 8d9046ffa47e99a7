"""Build ERNIE-Image's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from diffusers import ErnieImageTransformer2DModel

from inline_core.families import transformer
from inline_core.families.encoding import reading_one
from inline_core.families.ernie_image.denoise import ErnieImageDenoiser
from inline_core.families.ernie_image.family import RULES
from inline_core.families.ernie_image.text import encode_prompt
from inline_core.families.key_table import KeyTable
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser"]

# All layouts, and adapters, have the names of diffusers.
_TABLE: Final = KeyTable(MappingProxyType({}))
encode = reading_one(encode_prompt)


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear."""
    return transformer.adapted_model(plan, RULES.label, _TABLE)


def load_denoiser(plan: LoadPlan) -> ErnieImageDenoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    model = transformer.load_transformer(plan, ErnieImageTransformer2DModel, _TABLE)
    return ErnieImageDenoiser(model)
