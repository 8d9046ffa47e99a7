"""CLIP text encoders (L, G, H), with or without their projection.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers import CLIPTextConfig, CLIPTextModelWithProjection

from inline_core.families.text_encoders import loaded, open_clip
from inline_core.families.text_encoders.loaded import TextEncoder, load_encoder
from inline_core.loading.stream import LoadPlan, TensorSource, prefixed_sources

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ClipStates", "clip_tokens", "load_text_encoder", "load_tokenizer", "padding", "states"]

_INNER: Final = "text_model."
_PROJECTION: Final = "text_projection.weight"
# In many files, and not a part of the text encoder's work.
_IGNORABLE: Final = ("text_model.embeddings.position_ids", "embeddings.position_ids", "logit_scale")
# Published configs name token 2 as the end, and transformers then takes the highest token id as the
# end of a prompt, which is where CLIP pools.
_END: Final = 2
_TYPES: Final = frozenset({"clip_text_model", "clip"})
# What diffusion models were trained with, by the width of their CLIP.  Single files share one
# folder with a tokenizer, which pads for one kind only, so that the published kinds know better.
_PADS_WITH_END: Final = frozenset({768})  # L
_PADS_WITH_ZERO: Final = frozenset({1024, 1280})  # H and G of OpenCLIP: token 0, "!"


@dataclass(frozen=True, slots=True, eq=False)
class ClipStates:
    """What CLIP makes of rows of tokens.

    `layers` are the hidden states (rows, tokens, width) from the embeddings on, one more than there
    are layers; `last` (rows, tokens, width) is the last one with the final norm.  `pooled` (rows,
    width) is `last` at the end of the prompt, `projected` (rows, width of the projection) that
    through the projection, None where the file has none.
    """

    layers: tuple[Tensor, ...]
    last: Tensor
    pooled: Tensor
    projected: Tensor | None


def load_tokenizer(folder: Path, label: str) -> Any:
    """The tokenizer in `folder`, of the encoder `label`.  Raises: ModelFileMissing."""
    tokenizer = loaded.load_tokenizer(folder, label)
    return loaded.with_special_tokens(tokenizer, {"eos_token": "<|endoftext|>"})


def clip_tokens(encoder: TextEncoder, text: str) -> tuple[Tensor, int]:
    """Token ids (1, 77) with start, end and padding, and how many tokens were cut."""
    most = encoder.model.config.max_position_embeddings
    ids = list(encoder.tokenizer(text).input_ids)
    cut = max(len(ids) - most, 0)
    if cut:
        ids = [*ids[: most - 1], ids[-1]]
    ids += [padding(encoder)] * (most - len(ids))
    return torch.tensor([ids], device=encoder.device), cut  # (1, tokens)


def padding(encoder: TextEncoder) -> int:
    """The token that fills up a prompt: CLIP sees all of it, so it is a part of the features."""
    tokenizer, width = encoder.tokenizer, encoder.model.config.hidden_size
    if width in _PADS_WITH_ZERO:
        return 0
    if width in _PADS_WITH_END or tokenizer.pad_token_id is None:
        return int(tokenizer.eos_token_id)
    return int(tokenizer.pad_token_id)


def states(encoder: TextEncoder, tokens: Tensor) -> ClipStates:
    """Read token ids (rows, tokens)."""
    model = encoder.model
    output = model.text_model(input_ids=tokens, output_hidden_states=True)
    pooled = output.pooler_output  # (rows, width)
    projected = None if model.text_projection is None else model.text_projection(pooled)
    return ClipStates(tuple(output.hidden_states), output.last_hidden_state, pooled, projected)


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The text encoder with its tokenizer; `text_projection` is None where the file has none.

    Raises: ModelFileInvalid, RunCancelled.
    """
    prefix = plan.identity.prefix
    names = plan.logical.tensors
    sources = (
        open_clip.sources(names, prefix)
        if plan.identity.layout == "original"
        else _inside(prefixed_sources(names, prefix))
    )
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
        ignorable=[prefix + name for name in (*_IGNORABLE, *open_clip.IGNORABLE)],
    )


def clip_config(plan: LoadPlan) -> CLIPTextConfig:
    """The config from shapes; what a config.json beside the file says wins."""
    told = plan.files.config
    if told.get("model_type") in _TYPES:
        inner = told.get("text_config") or told  # that of a whole CLIP has both halves
        return CLIPTextConfig(**{key: value for key, value in inner.items() if key != "model_type"})
    return CLIPTextConfig(**{"eos_token_id": _END, **plan.identity.config})


def _inside(sources: dict[str, TensorSource]) -> dict[str, TensorSource]:
    """Transformers saves encoders without a projection without `text_model.` too."""
    return {
        name if name.startswith((_INNER, "text_projection")) else _INNER + name: source
        for name, source in sources.items()
    }
