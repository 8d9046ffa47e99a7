"""Prompts for Chroma: T5's features of the words, the end, and one token of padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.text_encoders.t5 import t5_tokens

if TYPE_CHECKING:
    from inline_core.families.text_encoders.loaded import TextEncoder

MAX_TOKENS: Final = 512


def encode_prompt(encoder: TextEncoder, prompt: str) -> EncodedPrompt:
    """Encode one prompt as ChromaPipeline does; device thread.

    T5 does not look at padding, and Chroma looks at its first token only: the rest is left out.
    """
    tokens, mask, cut = t5_tokens(encoder, prompt, MAX_TOKENS)
    kept = min(int(mask.sum()) + 1, MAX_TOKENS)
    output = encoder.model(input_ids=tokens[:, :kept], attention_mask=mask[:, :kept])
    return EncodedPrompt(output[0][0], cut)  # (tokens, width)
