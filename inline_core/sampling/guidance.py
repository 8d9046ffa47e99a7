"""Classifier-free guidance: what a batch member needs, and how two estimates become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def is_guided(cfg: float) -> bool:
    """Say whether the negative prompt matters; at exactly 1 it cancels out and is skipped."""
    return cfg != 1.0


def combine(positive: Tensor, negative: Tensor, cfg: Tensor) -> Tensor:
    """``negative + cfg * (positive - negative)`` (Ho and Salimans 2022, equation 6, rearranged).

    `positive`, `negative` (members, channels, height, width), `cfg` (members,).
    """
    scale = cfg.view(-1, 1, 1, 1)  # (members, 1, 1, 1)
    return positive + (scale - 1.0) * (positive - negative)
