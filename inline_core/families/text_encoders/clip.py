"""CLIP text encoders (L and G), with or without their projection.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any, Final

from transformers import CLIPTextConfig, CLIPTextModelWithProjection

from inline_core.families.text_encoders.loaded import (
    TextEncoder,
    load_encoder,
    load_tokenizer,
    prefixed_sources,
)
from inline_core.loading.stream import LoadPlan, TensorSource

__all__ = ["load_text_encoder", "load_tokenizer"]

_INNER: Final = "text_model."
_PROJECTION: Final = "text_projection.weight"
# In many files, and not a part of the text encoder's work.
_IGNORABLE: Final = ("text_model.embeddings.position_ids", "embeddings.position_ids", "logit_scale")
# Published configs name token 2 as the end, and transformers then takes the highest token id as the
# end of a prompt, which is where CLIP pools.
_END: Final = 2


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The text encoder with its tokenizer; `text_projection` is None where the file has none.

    Raises: ModelFileInvalid, RunCancelled.
    """
    prefix = plan.identity.prefix
    sources = _inside(prefixed_sources(plan.logical.tensors, prefix))
    config = clip_config(plan)
    projected = _PROJECTION in sources

    def build() -> Any:
        model = CLIPTextModelWithProjection(config)
        if not projected:
            model.text_projection = None
        return model

    return load_encoder(
        plan,
        tokenizer,
        build,
        lambda model: model.text_model.encoder.layers,
        sources=sources,
        ignorable=[prefix + name for name in _IGNORABLE],
    )


def clip_config(plan: LoadPlan) -> CLIPTextConfig:
    """The config from shapes; what a config.json beside the file says wins."""
    told = plan.files.config
    if told.get("model_type") in {"clip_text_model", "clip"}:
        return CLIPTextConfig(**{key: value for key, value in told.items() if key != "model_type"})
    return CLIPTextConfig(**{"eos_token_id": _END, **plan.identity.config})


def _inside(sources: dict[str, TensorSource]) -> dict[str, TensorSource]:
    """Transformers saves encoders without a projection without `text_model.` too."""
    return {
        name if name.startswith((_INNER, "text_projection")) else _INNER + name: source
        for name, source in sources.items()
    }
