"""Qwen3-VL as a text encoder: its language model alone, as nobody shows it pictures here.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any, Final

from transformers import Qwen3VLTextConfig, Qwen3VLTextModel

from inline_core.families.text_encoders.loaded import TextEncoder, load_language_model
from inline_core.families.text_encoders.qwen3 import load_tokenizer
from inline_core.loading.stream import LoadPlan

__all__ = ["load_text_encoder", "load_tokenizer"]

# In no shape; from the published config of the 4B model.
_ROPE_THETA: Final = 5_000_000.0
_SECTIONS: Final = (24, 20, 20)  # of a head of 128: half of it, for time, height and width


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The language model with its tokenizer.  Raises: ModelFileInvalid, RunCancelled."""
    config = text_config(plan)
    return load_language_model(plan, tokenizer, lambda: Qwen3VLTextModel(config))


def text_config(plan: LoadPlan) -> Qwen3VLTextConfig:
    """The config from shapes; what a config.json beside the file says wins."""
    told = plan.files.config.get("text_config")
    if isinstance(told, dict):
        return Qwen3VLTextConfig(**told)
    found = dict(plan.identity.config["text_config"])
    half = found["head_dim"] // 2
    side = half * _SECTIONS[1] // sum(_SECTIONS)
    rope = {
        "rope_type": "default",
        "rope_theta": _ROPE_THETA,
        "mrope_section": [half - 2 * side, side, side],
        "mrope_interleaved": True,
    }
    return Qwen3VLTextConfig(**found, rope_parameters=rope)
