"""Build Wan's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from diffusers import WanTransformer3DModel, WanVACETransformer3DModel

from inline_core.errors import ModelFileInvalid
from inline_core.families import transformer
from inline_core.families.wan.denoise import WanDenoiser
from inline_core.families.wan.family import RULES
from inline_core.families.wan.fun import WanFunTransformer3DModel
from inline_core.families.wan.fun_jobs import is_fun
from inline_core.families.wan.keys import TABLE
from inline_core.families.wan.text import encode, with_references
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser", "with_references"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    return transformer.adapted_model(plan, RULES.label, TABLE)


def load_denoiser(plan: LoadPlan) -> WanDenoiser:
    """The diffusion model, ready to predict.

    Raises: ModelFileInvalid, also for kin of Wan that are other networks; RunCancelled.
    """
    known = {kind.__name__: kind for kind in (WanTransformer3DModel, WanVACETransformer3DModel)}
    kind = known.get(plan.identity.class_name)
    if is_fun(plan.identity.config):
        kind = WanFunTransformer3DModel
    if kind is None:
        message = f"{plan.label} is {plan.identity.label}, which cannot be run here yet"
        raise ModelFileInvalid(message)
    return WanDenoiser(transformer.load_transformer(plan, kind, TABLE))
