"""Build LTX-2's transformer from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from diffusers import LTX2VideoTransformer3DModel

from inline_core.families import transformer
from inline_core.families.ltx2.denoise import LTX2Denoiser
from inline_core.families.ltx2.family import RULES
from inline_core.families.ltx2.keys import TABLE, LTX2Keys
from inline_core.families.ltx2.text import encode, laid_out, with_references
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.files import WeightFiles
from inline_core.loading.stream import LoadPlan

__all__ = [
    "adapted_model",
    "encode",
    "laid_out",
    "load_denoiser",
    "rope_of",
    "with_references",
]

# In no shape; of the published configs.
_ROPE: Final = "split"


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    sources = LTX2Keys(plan.logical.tensors).sources(plan.logical.tensors, plan.identity.prefix)
    return transformer.adapted(plan, RULES.label, sources, TABLE.adapter_targets)


def load_denoiser(plan: LoadPlan) -> LTX2Denoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    model = transformer.load_transformer(
        plan,
        LTX2VideoTransformer3DModel,
        LTX2Keys(plan.logical.tensors),
        rope_type=rope_of(plan.files),
        # Of the classes where no config.json says it; a config.json wins for what stands here.
        pos_embed_max_pos=20,
        base_height=2048,
        base_width=2048,
        audio_pos_embed_max_pos=20,
        rope_theta=10_000.0,
        causal_offset=1,
        timestep_scale_multiplier=1000,
        cross_attn_timestep_scale_multiplier=1000,
        rope_double_precision=True,
    )
    return LTX2Denoiser(model)


def rope_of(files: WeightFiles) -> str:
    """How the model's heads are turned by position: what the file says, else as published.

    Original files have the configs of all components in their header, below `transformer`.
    """
    told = files.config
    inner = told.get("transformer")
    found: Mapping[str, Any] = inner if isinstance(inner, Mapping) else told
    return str(found.get("rope_type") or _ROPE)
