"""Which jobs may be stepped together, and who is let in next.  Pure bookkeeping, no tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from inline_core.devices.split import Split
from inline_core.loading.component import ComponentRef
from inline_core.sampling.job import SampleJob
from inline_core.sampling.patches import ExpertBoundary, every

# How often a waiting job is overtaken before it is its turn, whatever matches better.
PATIENCE: Final = 8


@dataclass(frozen=True, slots=True)
class BatchKey:
    """Jobs with equal keys share forward passes: same weights, adapters and shapes.

    Guidance is no part of it: each estimate that a job needs is a row of its own.
    """

    model: ComponentRef
    width: int
    height: int
    references: tuple[tuple[int, int], ...] = ()
    frames: int = 1
    controls: tuple[ComponentRef, ...] = ()
    split: Split | None = None

    @classmethod
    def of(cls, job: SampleJob) -> BatchKey:
        """The key of a job."""
        # Of the patches only which expert is used is the same for a whole pass.
        kept = every(job.model.patches, ExpertBoundary)
        model, latent = replace(job.model, patches=kept), job.latent
        references = tuple((item.width, item.height) for item in job.positive.references)
        size = (latent.width, latent.height)
        return cls(model, *size, references, latent.frames, job.controls, job.split)

    @property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """Width, height and frames of all that goes through the model."""
        return ((self.width, self.height, self.frames), *self.references)


class Member(Protocol):
    """What the batcher needs to know of a job that is being stepped."""

    key: BatchKey
    pictures: int


class Entry(Member, Protocol):
    """What the batcher needs to know of a waiting job."""

    priority: int
    overtaken: int
    refused_for: str


def refusal(entry: Member, active: Sequence[Member], max_batch: int) -> str | None:
    """Why `entry` may not join now, or None if it may.  A lone job always may."""
    if not active:
        return None
    key = active[0].key
    if entry.key.model != key.model:
        same = (entry.key.model.path, entry.key.model.stamp) == (key.model.path, key.model.stamp)
        return "other_adapters" if same else "other_model"
    if entry.key.sizes != key.sizes:
        return "other_size"
    if entry.key.controls != key.controls:
        return "other_controls"
    if entry.key.split != key.split:
        return "other_split"
    if sum(item.pictures for item in active) + entry.pictures > max_batch:
        return "batch_full"
    return None


def choose(
    waiting: Sequence[Entry], active: Sequence[Member], max_batch: int, refused: Counter[str]
) -> Entry | None:
    """The next of the `waiting` jobs (in order of arrival) to let in, or None.

    Higher priority first, then first come first served, among the jobs that match.  A job is
    overtaken by later ones at most `PATIENCE` times, be it for its priority or because it does not
    match; then the batch runs dry and it is its turn.  Counts a reason in `refused` once per job.
    """
    queue = sorted(waiting, key=lambda entry: (entry.overtaken < PATIENCE, -entry.priority))
    for entry in queue:
        reason = refusal(entry, active, max_batch)
        if reason is None:
            _overtake(waiting, entry)
            return entry
        if entry.refused_for != reason:
            refused[reason] += 1
            entry.refused_for = reason
        if reason == "batch_full" or entry.overtaken >= PATIENCE:
            return None
    return None


def _overtake(waiting: Sequence[Entry], chosen: Entry) -> None:
    """Everybody who was there before `chosen` was overtaken once more."""
    for entry in waiting:
        if entry is chosen:
            return
        entry.overtaken += 1
