"""Prompts for Z-Image: the chat template, and the hidden states before the last layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from inline_core.families.encoded_prompt import EncodedPrompt

if TYPE_CHECKING:
    from inline_core.families.text_encoders.loaded import TextEncoder

__all__ = ["EncodedPrompt", "encode_prompt"]

MAX_TOKENS: Final = 512


def encode_prompt(encoder: TextEncoder, prompt: str) -> EncodedPrompt:
    """Encode one prompt as ZImagePipeline does, without its padding; device thread.

    The encoder is causal, so tokens do not see the padding behind them: leaving it out gives the
    same features for a fraction of the work.
    """
    text = encoder.tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=True,
    )
    tokens = encoder.tokenizer(text, return_tensors="pt").input_ids  # (1, tokens)
    cut = max(tokens.shape[1] - MAX_TOKENS, 0)
    tokens = tokens[:, :MAX_TOKENS].to(encoder.device)
    output = encoder.model(
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        output_hidden_states=True,
        use_cache=False,
    )
    # A copy, so that the other layers' states are let go.
    return EncodedPrompt(output.hidden_states[-2][0].clone(), cut)  # (tokens, width)
