"""Prompts for Z-Image: the chat template, and the hidden states before the last layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import Qwen3Model

MAX_TOKENS: Final = 512


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPrompt:
    """`features` (tokens, width) of one prompt; `cut_tokens` is how many did not fit."""

    features: Tensor
    cut_tokens: int = 0


class ZImageTextEncoder:
    """A loaded Qwen3 with its tokenizer.  Device thread only."""

    def __init__(self, model: Qwen3Model, tokenizer: Any) -> None:
        self._model = model
        self._tokenizer = tokenizer

    def encode(self, prompt: str) -> EncodedPrompt:
        """Encode one prompt as ZImagePipeline does, without its padding.

        The encoder is causal, so tokens do not see the padding behind them: leaving it out gives
        the same features for a fraction of the work.
        """
        text = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=True,
        )
        tokens = self._tokenizer(text, return_tensors="pt").input_ids  # (1, tokens)
        cut = max(tokens.shape[1] - MAX_TOKENS, 0)
        tokens = tokens[:, :MAX_TOKENS].to(self._model.device)
        output = self._model(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            output_hidden_states=True,
            use_cache=False,
        )
        return EncodedPrompt(output.hidden_states[-2][0], cut)  # (tokens, width)
