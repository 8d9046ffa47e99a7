"""Prompts for Ovis-Image: a chat template, and the last layer of Qwen3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from inline_core.families.encoded_prompt import EncodedPrompt

if TYPE_CHECKING:
    from inline_core.families.text_encoders.loaded import TextEncoder

MAX_TOKENS: Final = 256
SYSTEM_PROMPT: Final = (
    "Describe the image by detailing the color, quantity, text, shape, size, texture, spatial "
    "relationships of the objects and background: "
)


def encode_prompt(encoder: TextEncoder, prompt: str) -> EncodedPrompt:
    """Encode one prompt as OvisImagePipeline does; device thread.

    The model has no mask: what it knows behind a prompt are zeros up to the full length.
    """
    ids = encoder.tokenizer(
        templated(encoder.tokenizer, prompt), add_special_tokens=False
    ).input_ids
    before = words_before(encoder.tokenizer)
    most = MAX_TOKENS + before
    tokens = torch.tensor([ids[:most]], device=encoder.device)  # (1, tokens)
    output = encoder.model(
        input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False
    )
    states = output.last_hidden_state[0, before:]  # (tokens, width)
    features = states.new_zeros((MAX_TOKENS, states.shape[1]))  # (256, width)
    features[: len(states)] = states
    return EncodedPrompt(features, max(len(ids) - most, 0))


def templated(tokenizer: object, prompt: str) -> str:
    """The prompt as one message of a user, after what the model was told in training."""
    message = [{"role": "user", "content": SYSTEM_PROMPT + prompt}]
    text: str = tokenizer.apply_chat_template(  # type: ignore[attr-defined]
        message, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    return text


def words_before(tokenizer: object) -> int:
    """Tokens before a prompt, which the model is not shown: 28 of the published tokenizer."""
    start = templated(tokenizer, "").partition(SYSTEM_PROMPT)[0] + SYSTEM_PROMPT.rstrip()
    return len(tokenizer(start, add_special_tokens=False).input_ids)  # type: ignore[operator]
