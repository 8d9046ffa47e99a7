"""Prompts for ERNIE-Image: the words as they are, and the last layer but one of Ministral 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from inline_core.families.encoded_prompt import EncodedPrompt

if TYPE_CHECKING:
    from inline_core.families.text_encoders.loaded import TextEncoder

_LAYER: Final = -2
# Where the pipeline leaves it to the tokenizer, which knows no end worth naming.
MAX_TOKENS: Final = 4096


def encode_prompt(encoder: TextEncoder, prompt: str) -> EncodedPrompt:
    """Encode one prompt as ErnieImagePipeline does; features (tokens, width); device thread."""
    ids = encoder.tokenizer(prompt, add_special_tokens=True).input_ids
    # Nothing at all cannot be read.
    ids = ids or [encoder.tokenizer.bos_token_id or 0]
    tokens = torch.tensor([ids[:MAX_TOKENS]], device=encoder.device)  # (1, tokens)
    output = encoder.model(input_ids=tokens, output_hidden_states=True, use_cache=False)
    return EncodedPrompt(output.hidden_states[_LAYER][0], max(len(ids) - MAX_TOKENS, 0))
