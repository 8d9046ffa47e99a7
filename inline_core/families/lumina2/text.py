"""Prompts for Lumina 2: a system prompt before them, and Gemma's states before its last layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.text_encoders.loaded import tokens_of

if TYPE_CHECKING:
    from inline_core.families.encoding import Encoders
    from inline_core.sampling.values import Conditioning

MAX_TOKENS: Final = 256
# Published with the model; a negative prompt goes without it.
SYSTEM_PROMPT: Final = (
    "You are an assistant designed to generate superior images with the superior degree of "
    "image-text alignment based on textual prompts or user prompts."
)


def encode(encoders: Encoders, conditioning: Conditioning) -> EncodedPrompt:
    """Encode one prompt as Lumina2Pipeline does, without its padding; device thread."""
    text = conditioning.prompt
    if not conditioning.option("negative"):
        text = f"{SYSTEM_PROMPT} <Prompt Start> {text}"
    with encoders.open() as encoder:
        tokens, cut = tokens_of(encoder, text, MAX_TOKENS)
        output = encoder.model(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            output_hidden_states=True,
            use_cache=False,
        )
        # A copy, so that the other layers' states are let go.
        return EncodedPrompt(output.hidden_states[-2][0].clone(), cut)  # (tokens, width)
