"""Gemma 2 as a text encoder.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any

from transformers import Gemma2Config, Gemma2Model

from inline_core.families.text_encoders.loaded import (
    TextEncoder,
    load_encoder,
    load_tokenizer,
    told_config,
)
from inline_core.loading.stream import LoadPlan

__all__ = ["load_text_encoder", "load_tokenizer"]


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The text encoder with its tokenizer.  Raises: ModelFileInvalid, RunCancelled."""
    told = told_config(plan, "gemma2")
    config = Gemma2Config(**(told or plan.identity.config))
    return load_encoder(
        plan,
        tokenizer,
        lambda: Gemma2Model(config),
        lambda model: model.layers,
        ignorable=["lm_head.weight"],
    )
