"""Build Kandinsky 5's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from diffusers import Kandinsky5Transformer3DModel

from inline_core.errors import ModelFileInvalid
from inline_core.families import transformer
from inline_core.families.kandinsky5.denoise import Kandinsky5Denoiser
from inline_core.families.kandinsky5.family import RULES
from inline_core.families.kandinsky5.text import encode
from inline_core.families.key_table import KeyTable
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser"]

_TABLE: Final = KeyTable(MappingProxyType({}))
_ATTENTION: Final = "attention_type"


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear."""
    return transformer.adapted_model(plan, RULES.label, _TABLE)


def load_denoiser(plan: LoadPlan) -> Kandinsky5Denoiser:
    """The diffusion model, ready to predict.

    Raises: ModelFileInvalid, also for sparse attention (models of 10 seconds), RunCancelled.
    """
    kind = plan.files.config.get(_ATTENTION, "regular")
    if kind != "regular":
        message = f"{plan.label} has {kind} attention, which is not available here"
        raise ModelFileInvalid(message)
    model = transformer.load_transformer(plan, Kandinsky5Transformer3DModel, _TABLE)
    return Kandinsky5Denoiser(model)
