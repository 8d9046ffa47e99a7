"""T5, UMT5 and ByT5 encoders, from transformers' names.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from transformers import T5Config, T5EncoderModel, UMT5Config, UMT5EncoderModel

from inline_core.families.text_encoders.loaded import (
    TextEncoder,
    load_encoder,
    load_tokenizer,
    prefixed_sources,
)
from inline_core.loading.stream import LoadPlan

__all__ = ["load_text_encoder", "load_tokenizer"]

_TYPES: Final = frozenset({"t5", "umt5"})
_BUILDERS: Final[Mapping[str, Callable[[dict[str, Any]], Any]]] = MappingProxyType(
    {
        "T5EncoderModel": lambda config: T5EncoderModel(T5Config(**config)),
        "UMT5EncoderModel": lambda config: UMT5EncoderModel(UMT5Config(**config)),
    }
)
# One embedding under two names; files have either or both.
_SHARED: Final = "shared.weight"
_EMBEDDING: Final = "encoder.embed_tokens.weight"


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The encoder half with its tokenizer; a decoder in the file is left out.

    Raises: ModelFileInvalid, RunCancelled.
    """
    told = plan.files.config
    config = dict(told) if told.get("model_type") in _TYPES else dict(plan.identity.config)
    prefix = plan.identity.prefix
    sources = prefixed_sources(plan.logical.tensors, prefix)
    if _SHARED not in sources and _EMBEDDING in sources:
        sources[_SHARED] = sources[_EMBEDDING]
    # A whole T5 has a decoder and a head, which encode nothing.
    halves = [name for name in plan.logical.tensors if name.startswith((f"{prefix}decoder.",))]
    return load_encoder(
        plan,
        tokenizer,
        lambda: _BUILDERS[plan.identity.class_name](config),
        lambda model: model.encoder.block,
        sources=sources,
        ignorable=[prefix + _EMBEDDING, prefix + _SHARED, f"{prefix}lm_head.weight", *halves],
        finish=lambda model: model.encoder.set_input_embeddings(model.shared),
    )
