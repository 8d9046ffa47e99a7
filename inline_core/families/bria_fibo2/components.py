"""Build Bria FIBO 2's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from diffusers import BriaFibo2Transformer2DModel

from inline_core.families import transformer
from inline_core.families.bria_fibo2.denoise import BriaFibo2Denoiser
from inline_core.families.bria_fibo2.family import RULES
from inline_core.families.bria_fibo2.text import encode, with_references
from inline_core.families.key_table import KeyTable
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser", "with_references"]

# Known in the layout of diffusers only.
_TABLE: Final = KeyTable(MappingProxyType({}))


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear."""
    return transformer.adapted_model(plan, RULES.label, _TABLE)


def load_denoiser(plan: LoadPlan) -> BriaFibo2Denoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    model = transformer.load_transformer(plan, BriaFibo2Transformer2DModel, _TABLE)
    return BriaFibo2Denoiser(model)
