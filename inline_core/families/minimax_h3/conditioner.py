"""Qwen3-VL with its vision tower, as MiniMax H3 reads prompts and keyframes with it.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any, Final

from transformers import Qwen3VLConfig, Qwen3VLModel

from inline_core.families.text_encoders.loaded import (
    TextEncoder,
    load_encoder,
    sources_with_tower,
)
from inline_core.families.text_encoders.qwen3 import load_tokenizer
from inline_core.families.text_encoders.qwen3_vl import text_config
from inline_core.loading.stream import LoadPlan

__all__ = ["PAD", "load_text_encoder", "load_tokenizer"]

PAD: Final = "<|image_pad|>"


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The model with its tower and its tokenizer.  Raises: ModelFileInvalid, RunCancelled."""
    prefix = plan.identity.prefix
    config = _config(plan, tokenizer)
    return load_encoder(
        plan,
        tokenizer,
        lambda: Qwen3VLModel(config),
        lambda model: [*model.language_model.layers, *model.visual.blocks],
        sources=sources_with_tower(plan, "Qwen3-VL"),
        ignorable=["lm_head.weight", f"{prefix}lm_head.weight"],
    )


def _config(plan: LoadPlan, tokenizer: Any) -> Qwen3VLConfig:
    """The config from shapes; what a config.json beside the file says wins."""
    told = plan.files.config
    if told.get("model_type") == "qwen3_vl":
        config = Qwen3VLConfig.from_dict(dict(told))
    else:
        config = Qwen3VLConfig(
            text_config=text_config(plan).to_dict(),
            vision_config=dict(plan.identity.config["vision_config"]),
        )
    config.image_token_id = tokenizer.convert_tokens_to_ids(PAD)
    return config
