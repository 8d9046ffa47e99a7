"""Prompts for FLUX.2: the chat template, and three layers of a language model side by side.

klein reads Qwen3, dev reads Mistral Small 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers.pipelines.flux2.system_messages import SYSTEM_MESSAGE

from inline_core.errors import ModelFileInvalid
from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.flux2.family import KLEIN_KV

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.families.text_encoders.loaded import TextEncoder
    from inline_core.sampling.values import Conditioning, Latent

MAX_TOKENS: Final = 512
LAYERS: Final = (9, 18, 27)
LAYERS_OF_MISTRAL: Final = (10, 20, 30)
_IMAGE: Final = "[IMG]"


@dataclass(frozen=True, slots=True, eq=False)
class ReferringPrompt(EncodedPrompt):
    """A prompt with pictures to look at: normalised latents, each (1, channels, h, w).

    `apart` are pictures that look at themselves only, and that the time does not change.
    """

    references: tuple[Tensor, ...] = ()
    apart: bool = False


def with_references(prompt: ReferringPrompt, references: Sequence[Latent]) -> ReferringPrompt:
    """The prompt with pictures, normalised latents of one each, in order."""
    return replace(prompt, references=tuple(latent.samples for latent in references))


def encode(encoders: Encoders, conditioning: Conditioning) -> ReferringPrompt:
    """Encode the prompt of a conditioning for its variant; device thread.

    Raises: ModelFileInvalid if the encoder has too few layers.
    """
    with encoders.open() as encoder:
        found = encode_prompt(encoder, conditioning.prompt)
    apart = conditioning.option("variant", "") == KLEIN_KV
    return ReferringPrompt(found.features, found.cut_tokens, notes=found.notes, apart=apart)


def encode_prompt(encoder: TextEncoder, prompt: str) -> EncodedPrompt:
    """Encode one prompt as Flux2KleinPipeline and Flux2Pipeline do; device thread.

    The model has no mask for text: it was trained on prompts padded to the full length, and the
    features of the padding are part of what it sees.
    Raises: ModelFileInvalid if the encoder has too few layers.
    """
    mistral = encoder.model.config.model_type == "mistral"
    layers = LAYERS_OF_MISTRAL if mistral else LAYERS
    depth = encoder.model.config.num_hidden_layers
    if depth < layers[-1]:
        message = f"the text encoder has {depth} layers: FLUX.2 reads layer {layers[-1]}"
        raise ModelFileInvalid(message)
    tokenizer = encoder.tokenizer
    text = _words_for_mistral(tokenizer, prompt) if mistral else _words(tokenizer, prompt)
    # Mistral's template writes the first token itself.
    special = not (tokenizer.bos_token and text.startswith(tokenizer.bos_token))
    whole = len(tokenizer(text, add_special_tokens=special).input_ids)
    inputs = tokenizer(
        text,
        add_special_tokens=special,
        return_tensors="pt",
        padding="max_length",
        truncation=True,
        max_length=MAX_TOKENS,
    )
    output = encoder.model(
        input_ids=inputs.input_ids.to(encoder.device),  # (1, tokens)
        attention_mask=inputs.attention_mask.to(encoder.device),  # (1, tokens)
        output_hidden_states=True,
        use_cache=False,
    )
    read = [output.hidden_states[layer][0] for layer in layers]  # 3 x (tokens, width)
    return EncodedPrompt(torch.cat(read, dim=-1), max(whole - MAX_TOKENS, 0))


def _words(tokenizer: Any, prompt: str) -> str:
    """The prompt as Qwen3 reads it."""
    words: str = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    return words


def _words_for_mistral(tokenizer: Any, prompt: str) -> str:
    """The prompt as Mistral reads it, behind the system message that FLUX.2 was trained with.

    Marks of pictures are left out, as there are none.
    """
    turns = (("system", SYSTEM_MESSAGE), ("user", prompt.replace(_IMAGE, "")))
    messages = [
        {"role": role, "content": [{"type": "text", "text": words}]} for role, words in turns
    ]
    words: str = tokenizer.apply_chat_template(messages, tokenize=False)
    return words
