"""Prompts for FLUX.2 klein: the chat template, and three layers of Qwen3 side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from inline_core.errors import ModelFileInvalid
from inline_core.families.encoded_prompt import EncodedPrompt

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.text_encoders.loaded import TextEncoder
    from inline_core.sampling.values import Latent

MAX_TOKENS: Final = 512
LAYERS: Final = (9, 18, 27)


@dataclass(frozen=True, slots=True, eq=False)
class ReferringPrompt(EncodedPrompt):
    """A prompt with pictures to look at: normalised latents, each (1, channels, h, w)."""

    references: tuple[Tensor, ...] = ()


def with_references(prompt: EncodedPrompt, references: Sequence[Latent]) -> ReferringPrompt:
    """The prompt with pictures, normalised latents of one each, in order."""
    return ReferringPrompt(
        prompt.features,
        prompt.cut_tokens,
        notes=prompt.notes,
        references=tuple(latent.samples for latent in references),
    )


def encode_prompt(encoder: TextEncoder, prompt: str) -> EncodedPrompt:
    """Encode one prompt as Flux2KleinPipeline does; device thread.

    The model has no mask for text: it was trained on prompts padded to the full length, and the
    features of the padding are part of what it sees.
    Raises: ModelFileInvalid if the encoder has too few layers.
    """
    depth = encoder.model.config.num_hidden_layers
    if depth < LAYERS[-1]:
        message = f"the text encoder has {depth} layers: FLUX.2 reads layer {LAYERS[-1]}"
        raise ModelFileInvalid(message)
    text = encoder.tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    whole = len(encoder.tokenizer(text).input_ids)
    inputs = encoder.tokenizer(
        text, return_tensors="pt", padding="max_length", truncation=True, max_length=MAX_TOKENS
    )
    output = encoder.model(
        input_ids=inputs.input_ids.to(encoder.device),  # (1, tokens)
        attention_mask=inputs.attention_mask.to(encoder.device),  # (1, tokens)
        output_hidden_states=True,
        use_cache=False,
    )
    layers = [output.hidden_states[layer][0] for layer in LAYERS]  # 3 x (tokens, width)
    return EncodedPrompt(torch.cat(layers, dim=-1), max(whole - MAX_TOKENS, 0))
