"""The demo's tokenizer: a small byte-level BPE with Qwen's pre-tokenizer and chat template."""

from __future__ import annotations

import json
import random
from typing import Final

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from .captions import Scene, all_scenes, write_caption

CAPTION_LENGTH: Final = 32
PAD: Final = "<|endoftext|>"
SPECIALS: Final = (PAD, "<|im_start|>", "<|im_end|>")
TEMPLATE: Final = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}"
    "{%- endif %}"
    "{%- endif %}"
)


def _corpus(seed: int) -> list[str]:
    """Return captions and chat text, so that each of their words becomes one token."""
    rng = random.Random(seed)
    scenes = all_scenes(held_out=False)
    lines = [write_caption(rng.choice(scenes), rng) for _ in range(4000)]
    return [*lines, *(line.capitalize() for line in lines), *["user\n", "assistant\n"] * 200]


def build(seed: int) -> Qwen2Tokenizer:
    """Return a Qwen2Tokenizer with about 350 tokens; any text can be encoded, byte by byte."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=640,
        min_frequency=20,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    raw.train_from_iterator(_corpus(seed), trainer)
    state = json.loads(raw.to_str())["model"]
    merges = [
        tuple(pair) if isinstance(pair, list) else tuple(pair.split(" "))
        for pair in state["merges"]
    ]
    vocab = dict(state["vocab"])
    for special in SPECIALS:
        vocab[special] = len(vocab)
    tokenizer = Qwen2Tokenizer(
        vocab=vocab,
        merges=merges,
        pad_token=PAD,
        eos_token="<|im_end|>",  # noqa: S106
        extra_special_tokens=["<|im_start|>", "<|im_end|>"],
        padding_side="right",
        model_max_length=4096,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def chat(tokenizer: Qwen2Tokenizer, caption: str) -> str:
    """Return the prompt that ZImagePipeline builds of a caption."""
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": caption}],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=True,
    )
    return str(text)


def encode(tokenizer: Qwen2Tokenizer, captions: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids (B, 32) int64 and their mask (B, 32) bool; longer captions are refused."""
    ids = [tokenizer(chat(tokenizer, caption)).input_ids for caption in captions]
    longest = max(len(row) for row in ids)
    if longest > CAPTION_LENGTH:
        raise ValueError(f"a caption takes {longest} tokens, more than {CAPTION_LENGTH}")
    pad = tokenizer.pad_token_id
    padded = torch.tensor([row + [pad] * (CAPTION_LENGTH - len(row)) for row in ids])  # (B, 32)
    lengths = torch.tensor([len(row) for row in ids])  # (B,)
    return padded, torch.arange(CAPTION_LENGTH)[None] < lengths[:, None]  # (B, 32), (B, 32)


class CaptionBook:
    """Encoded phrasings of scenes, so that training looks tokens up instead of making them.

    :param tokenizer: the demo's tokenizer.
    :param scenes: the scenes, in the order of their latents.
    :param phrasings: how many captions each scene gets.
    :param seed: seed of the phrasings.
    """

    def __init__(
        self, tokenizer: Qwen2Tokenizer, scenes: list[Scene], phrasings: int, seed: int
    ) -> None:
        rng = random.Random(seed)
        texts = [write_caption(scene, rng) for scene in scenes for _ in range(phrasings)]
        ids, mask = encode(tokenizer, [*texts, ""])  # (N*P+1, 32), (N*P+1, 32)
        self._ids, self._mask, self._phrasings = ids, mask, phrasings
        self.empty = ids[-1]  # (32,)

    def look_up(self, scenes: torch.Tensor, dropout: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids (B, 32) and mask (B, 32) of a random phrasing, or of the empty caption.

        :param scenes: (B,) indices of scenes.
        :param dropout: share of empty captions, 0..1.
        """
        pick = torch.randint(self._phrasings, scenes.shape)  # (B,)
        rows = scenes * self._phrasings + pick  # (B,)
        empty = torch.rand(scenes.shape) < dropout  # (B,)
        rows = torch.where(empty, len(self._ids) - 1, rows)  # (B,)
        return self._ids[rows], self._mask[rows]  # (B, 32), (B, 32)
