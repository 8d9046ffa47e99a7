"""Ministral 3 as a text encoder: its language model without the vision tower.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any

from transformers import Ministral3Config, Ministral3Model

from inline_core.families.text_encoders.loaded import TextEncoder, load_encoder
from inline_core.families.text_encoders.mistral import load_tokenizer
from inline_core.loading.stream import LoadPlan

__all__ = ["load_text_encoder", "load_tokenizer"]


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The language model with its tokenizer.  Raises: ModelFileInvalid, RunCancelled."""
    config = _config(plan)
    prefix, names = plan.identity.prefix, plan.logical.tensors
    read = (f"{prefix}embed_tokens.", f"{prefix}norm.", f"{prefix}layers.")
    # The vision tower, the head, and the tokenizer inside ComfyUI's files.
    others = [name for name in names if not name.startswith(read)]
    return load_encoder(
        plan,
        tokenizer,
        lambda: Ministral3Model(config),
        lambda model: model.layers,
        ignorable=others,
    )


def _config(plan: LoadPlan) -> Ministral3Config:
    """The config from shapes; what a config.json beside the file says wins.

    What no shape tells (rope) is that of the class, which has it from the published configs.
    """
    told = plan.files.config
    inner = told.get("text_config") if told.get("model_type") == "mistral3" else told
    if isinstance(inner, dict) and inner.get("model_type") == "ministral3":
        return Ministral3Config.from_dict(dict(inner))
    found = dict(plan.identity.config)
    return Ministral3Config(**found.get("text_config", found))
