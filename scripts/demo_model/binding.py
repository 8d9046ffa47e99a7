"""Teaches the text encoder, before the transformer, to gather a caption's meaning.

The states of the five tokens behind a caption learn to name its shape, size, place and colours.
That costs a minute and saves the transformer from finding out which colour is whose.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import nn
from torch.nn import functional
from transformers import Qwen2Tokenizer, Qwen3Model

from . import network, prompts
from .budget import log
from .captions import PALETTE, PLACES, SHAPES, SIZES, all_scenes

STEPS: Final = 300
BATCH: Final = 48
PEAK_RATE: Final = 2e-3
TAIL: Final = 5
PHRASINGS: Final = 3
CLASSES: Final = (SHAPES, SIZES, PLACES, tuple(PALETTE), tuple(PALETTE))


def _answers() -> torch.Tensor:
    """Return the five right classes of every training scene, (N, 5) int64."""
    rows = [
        [
            names.index(word)
            for names, word in zip(
                CLASSES,
                (scene.shape, scene.size, scene.place, scene.colour, scene.background),
                strict=True,
            )
        ]
        for scene in all_scenes(held_out=False)
    ]
    return torch.tensor(rows)  # (N, 5)


def teach(encoder: Qwen3Model, tokenizer: Qwen2Tokenizer, seed: int) -> float:
    """Train the encoder in place; return the share of right answers near the end, 0..1."""
    torch.manual_seed(seed)
    answers = _answers()  # (N, 5)
    book = prompts.CaptionBook(tokenizer, all_scenes(held_out=False), PHRASINGS, seed)
    heads = nn.Linear(network.TEXT_WIDTH, sum(len(names) for names in CLASSES))
    parameters = [*encoder.parameters(), *heads.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=PEAK_RATE, betas=(0.9, 0.98))
    right = 0.0
    for step in range(1, STEPS + 1):
        for group in optimiser.param_groups:
            group["lr"] = PEAK_RATE * min(1.0, step / 20, (STEPS + 1 - step) / (STEPS / 3))
        picks = torch.randint(len(answers), (BATCH,))  # (B,)
        ids, mask = book.look_up(picks, 0.0)  # (B, 32), (B, 32)
        states = network.text_states(encoder, ids)  # (B, 32, 128)
        tail = mask.sum(1, keepdim=True) - 1 - torch.arange(TAIL)  # (B, 5)
        seen = states[torch.arange(BATCH)[:, None], tail]  # (B, 5, 128)
        scale = seen.square().mean(-1, keepdim=True).rsqrt()  # (B, 5, 1)
        loss, right = _judge(heads(seen * scale), answers[picks])
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        if step % 50 == 0:
            log(f"binding step {step} loss {loss:.3f} right {right:.3f}")
    return right


def _judge(scores: torch.Tensor, answers: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Return the loss () and the share of right answers.

    :param scores: (B, T, C) of all classes of all five questions.
    :param answers: (B, 5) right classes.
    """
    parts = torch.split(scores, [len(names) for names in CLASSES], dim=-1)
    losses, hits = [], []
    for question, part in enumerate(parts):
        wanted = answers[:, question, None].expand(-1, part.shape[1])  # (B, T)
        losses.append(functional.cross_entropy(part.flatten(0, 1), wanted.flatten()))
        hits.append((part.argmax(-1) == wanted).float().mean().item())
    return torch.stack(losses).sum(), sum(hits) / len(hits)
