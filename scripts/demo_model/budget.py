"""Wall-clock budgets: a schedule that surely ends in time, and files that appear whole."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


class WallClock:
    """How much of a training budget is used, in wall-clock seconds.

    :param minutes: the whole budget.
    :param used: seconds that earlier runs have already used.
    """

    def __init__(self, minutes: float, used: float = 0.0) -> None:
        self._total = minutes * 60.0
        self._start = time.monotonic() - used

    def used(self) -> float:
        """Return the seconds used so far."""
        return time.monotonic() - self._start

    def progress(self) -> float:
        """Return the used share of the budget, 0..1."""
        return min(1.0, self.used() / self._total)

    def rate(self, warmup: float = 0.03, floor: float = 0.01) -> float:
        """Return the learning rate's factor now: a linear warm-up, then a cosine to `floor`."""
        done = self.progress()
        if done < warmup:
            return max(0.02, done / warmup)
        fall = (done - warmup) / (1.0 - warmup)
        return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * fall))


def save_whole(path: Path, payload: Mapping[str, Any]) -> None:
    """Save a checkpoint so that a reader sees either the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(dict(payload), partial)
    partial.replace(path)


def log(message: str) -> None:
    """Print one line with the time of day, at once."""
    print(f"{time.strftime('%H:%M:%S')} {message}", flush=True)
