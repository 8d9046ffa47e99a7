"""Build ACE-Step's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Iterable

from diffusers import AceStepTransformer1DModel

from inline_core.errors import ModelFileInvalid
from inline_core.families import transformer
from inline_core.families.ace_step.denoise import AceStepDenoiser
from inline_core.families.ace_step.family import RULES
from inline_core.families.ace_step.keys import AceStepKeys
from inline_core.families.ace_step.text import encode
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.stream import LoadPlan

__all__ = ["adapted_model", "encode", "load_denoiser"]


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in both layouts."""
    keys = _keys(plan.logical.tensors)
    sources = keys.sources(plan.logical.tensors, plan.identity.prefix)
    return transformer.adapted(plan, RULES.label, sources, keys.table.adapter_targets)


def load_denoiser(plan: LoadPlan) -> AceStepDenoiser:
    """The diffusion model, ready to predict.

    Raises: ModelFileInvalid, also for ACE-Step 1.0, which is another network; RunCancelled.
    """
    if plan.identity.class_name != AceStepTransformer1DModel.__name__:
        message = f"{plan.label} is {plan.identity.label}, which cannot be run here yet"
        raise ModelFileInvalid(message)
    # Not in the shapes; from the published configs.
    model = transformer.load_transformer(
        plan,
        AceStepTransformer1DModel,
        _keys(plan.logical.tensors),
        rope_theta=1_000_000.0,
        rms_norm_eps=1e-6,
        sliding_window=128,
        layer_types=None,
    )
    return AceStepDenoiser(model)


def _keys(names: Iterable[str]) -> AceStepKeys:
    return AceStepKeys(tuple(names))
