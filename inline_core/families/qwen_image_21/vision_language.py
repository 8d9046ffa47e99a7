"""Qwen3-VL with its vision tower, as Qwen-Image 2.1 reads prompts and pictures with it.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any, Final

from transformers import Qwen3VLConfig, Qwen3VLModel

from inline_core.families.text_encoders.loaded import TextEncoder, load_with_tower, told_config
from inline_core.families.text_encoders.qwen3 import load_tokenizer
from inline_core.families.text_encoders.qwen3_vl import text_config
from inline_core.loading.stream import LoadPlan

__all__ = ["PAD", "load_text_encoder", "load_tokenizer"]

PAD: Final = "<|image_pad|>"


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The model with its tower and its tokenizer.  Raises: ModelFileInvalid, RunCancelled."""
    config = _config(plan, tokenizer)
    return load_with_tower(plan, tokenizer, lambda: Qwen3VLModel(config), "Qwen3-VL")


def _config(plan: LoadPlan, tokenizer: Any) -> Qwen3VLConfig:
    """The config from shapes; what a config.json beside the file says wins."""
    told = told_config(plan, "qwen3_vl")
    if told is not None:
        config = Qwen3VLConfig.from_dict(dict(told))
    else:
        config = Qwen3VLConfig(
            text_config=text_config(plan).to_dict(),
            vision_config=dict(plan.identity.config["vision_config"]),
        )
    config.image_token_id = tokenizer.convert_tokens_to_ids(PAD)
    return config
