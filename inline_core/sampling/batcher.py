"""Which jobs may be stepped together, and who is let in next.  Pure bookkeeping, no tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from inline_core.loading.component import ComponentRef
from inline_core.sampling.guidance import is_guided
from inline_core.sampling.job import SampleJob

# How often a waiting job of another kind is overtaken before nobody new is let in.
PATIENCE: Final = 8


@dataclass(frozen=True, slots=True)
class BatchKey:
    """Jobs with equal keys share forward passes: same weights, same shapes, same guidance mode."""

    model: ComponentRef
    width: int
    height: int
    guided: bool

    @classmethod
    def of(cls, job: SampleJob) -> BatchKey:
        """The key of a job."""
        return cls(job.model, job.latent.width, job.latent.height, is_guided(job.cfg))


class Entry(Protocol):
    """What the batcher needs to know of a waiting job."""

    key: BatchKey
    pictures: int
    overtaken: int
    refused_for: str


def refusal(entry: Entry, active: Sequence[Entry], max_batch: int) -> str | None:
    """Why `entry` may not join now, or None if it may.  A lone job always may."""
    if not active:
        return None
    key = active[0].key
    if entry.key.model != key.model:
        return "other_model"
    if (entry.key.width, entry.key.height) != (key.width, key.height):
        return "other_size"
    if entry.key.guided != key.guided:
        return "other_guidance"
    if sum(item.pictures for item in active) + entry.pictures > max_batch:
        return "batch_full"
    return None


def choose(
    waiting: Sequence[Entry], active: Sequence[Entry], max_batch: int, refused: Counter[str]
) -> Entry | None:
    """The next waiting job to let in, or None; counts a reason in `refused` once per job.

    First come first served among the jobs that match; a job that does not match is overtaken at
    most `PATIENCE` times, then the batch runs dry and it is its turn.
    """
    passed: list[Entry] = []
    for entry in waiting:
        reason = refusal(entry, active, max_batch)
        if reason is None:
            for other in passed:
                other.overtaken += 1
            return entry
        if entry.refused_for != reason:
            refused[reason] += 1
            entry.refused_for = reason
        if reason == "batch_full" or entry.overtaken >= PATIENCE:
            return None
        passed.append(entry)
    return None
