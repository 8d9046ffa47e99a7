"""Gemma 4 as a text encoder: its language model, whose layers are all looked at.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any, Final

from transformers import (
    Gemma4TextConfig,
    Gemma4TextModel,
    Gemma4UnifiedTextConfig,
    Gemma4UnifiedTextModel,
)

from inline_core.families.text_encoders.loaded import (
    TextEncoder,
    load_language_model,
    load_tokenizer,
)
from inline_core.families.transformer import buffers_as_weights
from inline_core.loading.stream import LoadPlan

__all__ = ["load_text_encoder", "load_tokenizer"]

_BY_LAYER: Final = "Gemma4TextModel"  # the class of those with an embedding for each layer


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The language model with its tokenizer; towers for pictures and sounds are left out.

    Raises: ModelFileInvalid, RunCancelled.
    """
    return load_language_model(plan, tokenizer, lambda: _built(plan))


def _built(plan: LoadPlan) -> Any:
    """The module without weights; the scales of its layers lie in files, as weights do."""
    told = dict(plan.files.config)
    told = dict(told.get("text_config") or told)
    by_layer = plan.identity.class_name == _BY_LAYER
    found = told if str(told.get("model_type", "")).startswith("gemma4") else plan.identity.config
    model: Any
    if by_layer:
        model = Gemma4TextModel(_config(Gemma4TextConfig, found))
    else:
        model = Gemma4UnifiedTextModel(_config(Gemma4UnifiedTextConfig, found))
    scales = [name for name, _ in model.named_buffers() if name.endswith("layer_scalar")]
    buffers_as_weights(model, *scales)
    return model


def _config(kind: Any, found: Any) -> Any:
    """A config of this kind from a config.json of any kind of Gemma 4, or from shapes."""
    values = {key: value for key, value in found.items() if key != "model_type"}
    return kind(**values)
