"""Prompts for Ideogram 4: thirteen layers of Qwen3-VL for every token, or no words at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import torch

from inline_core.errors import ModelFileInvalid
from inline_core.families.encoded_prompt import EncodedPrompt

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.families.text_encoders.loaded import TextEncoder
    from inline_core.sampling.values import Conditioning

# Of Ideogram4Pipeline: the layers whose output is read, by number, and the most tokens there are.
LAYERS: Final = (0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 35)
MAX_TOKENS: Final = 2048
# What Qwen3-VL's chat template makes of one message of a user.
PREFIX: Final = "<|im_start|>user\n"
SUFFIX: Final = "<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True, slots=True, eq=False)
class WordsOrNone(EncodedPrompt):
    """A prompt whose `features` (tokens, width) may be none, as the unconditional model wants."""

    def zeroed(self) -> Self:
        """The same without words: they are left out, not zero."""
        return replace(self, features=self.features[:0], cut_tokens=0)


def encode(encoders: Encoders, conditioning: Conditioning) -> WordsOrNone:
    """Encode one prompt as Ideogram4Pipeline does; an empty negative one has no words.

    Device thread.  Raises: ModelFileInvalid if the encoder has too few layers.
    """
    with encoders.open() as encoder:
        depth = encoder.model.config.num_hidden_layers
        if depth <= LAYERS[-1]:
            message = f"the text encoder has {depth} layers: Ideogram 4 reads {LAYERS[-1] + 1}"
            raise ModelFileInvalid(message)
        suffix = list(encoder.tokenizer(SUFFIX, add_special_tokens=False).input_ids)
        words = list(
            encoder.tokenizer(PREFIX + conditioning.prompt, add_special_tokens=False).input_ids
        )
        most = MAX_TOKENS - len(suffix)
        features = _states_of(encoder, words[:most] + suffix)  # (tokens, width * 13)
    prompt = WordsOrNone(features, max(len(words) - most, 0))
    unsaid = conditioning.option("negative") and not conditioning.prompt
    return prompt.zeroed() if unsaid else prompt


def _states_of(encoder: TextEncoder, ids: list[int]) -> Tensor:
    """The states of all tokens in all layers that are read, layers innermost."""
    tokens = torch.tensor([ids], device=encoder.device)  # (1, tokens)
    # The last layer is read before the norm.
    handle = encoder.model.norm.register_forward_hook(lambda _module, given, _output: given[0])
    try:
        output = encoder.model(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            output_hidden_states=True,
            use_cache=False,
        )
    finally:
        handle.remove()
    layers = [output.hidden_states[layer + 1][0] for layer in LAYERS]  # 13 x (tokens, width)
    return torch.stack(layers, dim=-1).flatten(1)  # (tokens, width * 13)
