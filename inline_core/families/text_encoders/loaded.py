"""A text encoder as families read it, and how one is built: from shapes, weights streamed in.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from accelerate import init_empty_weights
from transformers import AutoTokenizer

from inline_core.errors import ModelFileInvalid, ModelFileMissing
from inline_core.families.transformer import place_buffers
from inline_core.loading.interruption import Interruption
from inline_core.loading.offload import offload
from inline_core.loading.stream import LoadPlan, TensorSource, fill, prefixed_sources

if TYPE_CHECKING:
    from torch import Tensor

_TOWERS: Final = ("visual.", "model.visual.")


@dataclass(frozen=True, slots=True, eq=False)
class TextEncoder:
    """A loaded encoder and its tokenizer; inputs go to `device`.  One thread at a time.

    `interruption` asks between the layers.
    """

    model: Any
    tokenizer: Any
    device: str
    interruption: Interruption


def load_tokenizer(folder: Path, label: str) -> Any:
    """The tokenizer in `folder`, of the encoder `label`.  Raises: ModelFileMissing."""
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).replace(str(folder), folder.name)
        message = f"the tokenizer of {label} in {folder.name}/ cannot be read: {reason}"
        raise ModelFileMissing(message) from error


def with_special_tokens(tokenizer: Any, tokens: Mapping[str, str]) -> Any:
    """The tokenizer, which learns what its folder does not say: `pad_token`, `eos_token`, ..."""
    known = tokenizer.get_vocab()
    for kind, token in tokens.items():
        if getattr(tokenizer, kind) is None and token in known:
            setattr(tokenizer, kind, token)
    return tokenizer


def load_encoder(
    plan: LoadPlan,
    tokenizer: Any,
    build: Callable[[], Any],
    layers: Callable[[Any], Iterable[Any]],
    *,
    sources: Mapping[str, TensorSource] | None = None,
    ignorable: Collection[str] = (),
    finish: Callable[[Any], None] | None = None,
    precise: Collection[str] = (),
) -> TextEncoder:
    """A text encoder, ready to read prompts.

    `build` makes the module; its buffers (rotary frequencies, positions) are computed, as no file
    has them.  `sources` say where its weights lie (usually under their own names behind the
    prefix), `layers` which modules the cancel check is asked between; `finish` is called with the
    filled module (to tie what two names share).  What has one of `precise` in its name stays in
    float32.
    Raises: ModelFileInvalid, RunCancelled.
    """
    with init_empty_weights(include_buffers=False):
        model = build()
    if sources is None:
        sources = prefixed_sources(plan.logical.tensors, plan.identity.prefix)
    place_buffers(model, plan.placement.storage)
    fill(model, sources, plan, ignorable=ignorable, precise=precise)
    if finish is not None:
        finish(model)
    offload(model, plan.placement)
    interruption = Interruption(list(layers(model)))
    return TextEncoder(model.eval(), tokenizer, plan.placement.device, interruption)


def load_language_model(plan: LoadPlan, tokenizer: Any, build: Callable[[], Any]) -> TextEncoder:
    """The language model of a file, whose layers `build` calls `layers`.

    Its head, and towers for pictures and sounds, stay on the disk.
    Raises: ModelFileInvalid, RunCancelled.
    """
    prefix = plan.identity.prefix
    beside = ("lm_head.weight", "visual.")
    others = [
        name
        for name in plan.logical.tensors
        if not name.startswith(prefix) or name.removeprefix(prefix).startswith(beside)
    ]
    return load_encoder(plan, tokenizer, build, lambda model: model.layers, ignorable=others)


def load_with_tower(
    plan: LoadPlan, tokenizer: Any, build: Callable[[], Any], name: str
) -> TextEncoder:
    """A language model together with its vision tower; `name` is what the two are called.

    Raises: ModelFileInvalid if there is no tower in the file, RunCancelled.
    """
    return load_encoder(
        plan,
        tokenizer,
        build,
        lambda model: [*model.language_model.layers, *model.visual.blocks],
        sources=_sources_with_tower(plan, name),
        ignorable=["lm_head.weight", f"{plan.identity.prefix}lm_head.weight"],
    )


def told_config(plan: LoadPlan, model_type: str) -> Mapping[str, Any] | None:
    """The config.json beside the weights, if it is one of this type."""
    told = plan.files.config
    return told if told.get("model_type") == model_type else None


def _sources_with_tower(plan: LoadPlan, name: str) -> dict[str, TensorSource]:
    """Module name -> place in the file, of a language model and its vision tower."""
    prefix, names = plan.identity.prefix, plan.logical.tensors
    tower = next((start for start in _TOWERS if any(n.startswith(start) for n in names)), None)
    if tower is None:
        message = f"{plan.label} has no vision tower: a whole {name} is needed"
        raise ModelFileInvalid(message)
    sources: dict[str, TensorSource] = {}
    for place in names:
        if place.startswith(tower):
            sources[f"visual.{place[len(tower) :]}"] = TensorSource(place)
        elif place.startswith(prefix):
            sources[f"language_model.{place[len(prefix) :]}"] = TensorSource(place)
    return sources


def tokens_of(encoder: TextEncoder, text: str, most: int) -> tuple[Tensor, int]:
    """Token ids (1, tokens) without padding on the encoder's device, and how many were cut.

    An empty prompt of a tokenizer without a token for the start is one token of padding.
    """
    ids = encoder.tokenizer(text).input_ids or [encoder.tokenizer.pad_token_id or 0]
    tokens = torch.tensor([ids[:most]], device=encoder.device)  # (1, tokens)
    return tokens, max(len(ids) - most, 0)
