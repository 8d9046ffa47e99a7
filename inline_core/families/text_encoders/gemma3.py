"""Gemma 3 as a text encoder: its language model, whose layers are all looked at.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transformers import Gemma3TextConfig, Gemma3TextModel

from inline_core.families.text_encoders.loaded import (
    TextEncoder,
    load_language_model,
    load_tokenizer,
)
from inline_core.loading.stream import LoadPlan

__all__ = ["load_text_encoder", "load_tokenizer"]

# In no shape; of the published config of the 12B model.
_PUBLISHED: Final[Mapping[str, Any]] = {
    "sliding_window": 1024,
    "query_pre_attn_scalar": 256,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    },
}


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The language model with its tokenizer; a vision tower in the file is left out.

    Raises: ModelFileInvalid, RunCancelled.
    """
    config = _config(plan)
    return load_language_model(plan, tokenizer, lambda: Gemma3TextModel(config))


def _config(plan: LoadPlan) -> Gemma3TextConfig:
    """What a config.json beside the file says, else the shapes with what is published."""
    told = plan.files.config
    if told.get("model_type") == "gemma3":
        return Gemma3TextConfig.from_dict(dict(told["text_config"]))
    if told.get("model_type") == "gemma3_text":
        return Gemma3TextConfig.from_dict(dict(told))
    shapes = dict(plan.identity.config)
    return Gemma3TextConfig(**{**_PUBLISHED, **shapes.get("text_config", shapes)})
