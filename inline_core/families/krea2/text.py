"""Prompts for Krea 2: Qwen-Image's template, and twelve layers of Qwen3-VL for every token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from inline_core.errors import ModelFileInvalid
from inline_core.families.encoded_prompt import EncodedPrompt

if TYPE_CHECKING:
    from inline_core.families.text_encoders.loaded import TextEncoder

# Of Krea2Pipeline.  A prompt and the suffix have at most this many tokens.
MAX_TOKENS: Final = 512
LAYERS: Final = (2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35)
PREFIX: Final = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "
    "quantity, text, spatial relationships of the objects and background:<|im_end|>\n"
    "<|im_start|>user\n"
)
SUFFIX: Final = "<|im_end|>\n<|im_start|>assistant\n"


def encode_prompt(encoder: TextEncoder, prompt: str) -> EncodedPrompt:
    """Encode one prompt as Krea2Pipeline does; features (tokens, layers, width); device thread.

    The pipeline pads between prompt and suffix, with a mask and positions that do not count the
    padding: leaving it out gives the same features.
    Raises: ModelFileInvalid if the encoder has too few layers.
    """
    depth = encoder.model.config.num_hidden_layers
    if depth < LAYERS[-1]:
        message = f"the text encoder has {depth} layers: Krea 2 reads layer {LAYERS[-1]}"
        raise ModelFileInvalid(message)
    before, suffix = (len(encoder.tokenizer(text).input_ids) for text in (PREFIX, SUFFIX))
    most = MAX_TOKENS + before - suffix
    words = encoder.tokenizer(PREFIX + prompt).input_ids
    cut = max(len(words) - most, 0)
    ids = words[:most] + encoder.tokenizer(SUFFIX).input_ids
    tokens = torch.tensor([ids], device=encoder.device)  # (1, tokens)
    output = encoder.model(
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        output_hidden_states=True,
        use_cache=False,
    )
    layers = [output.hidden_states[layer][0, before:] for layer in LAYERS]  # 12 x (tokens, width)
    return EncodedPrompt(torch.stack(layers, dim=1), cut)  # (tokens, layers, width)
