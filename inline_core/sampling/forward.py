"""Forward passes for many jobs at once: rows gathered, sized, run, and handed back."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from inline_core.sampling.family import BatchDenoiser, Row
from inline_core.sampling.memory import is_out_of_memory
from inline_core.sampling.speeds import PassSpeeds
from inline_core.sampling.stepping import Ask, Way

if TYPE_CHECKING:
    from torch import Tensor

Check = Callable[[], None]
_NO_LIMIT: Final = 1_000_000
# Places of latents in one pass; four of them are a token in patches of 2 x 2.
_CELLS_ALONE: Final = 1024


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """One row of a pass, and whose it is."""

    job: int
    picture: int
    way: Way
    latents: Tensor
    sigma: float
    row: Row


@dataclass(slots=True)
class ForwardCounts:
    """What passes there were since the start."""

    forwards: int = 0
    rows: int = 0
    pictures: int = 0
    largest_batch: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ForwardLimits:
    """Most pictures in one pass, by setting and by memory, and the kind its speed is known as.

    `rows_apart`: each estimate is a pass of its own.
    """

    max_pictures: int
    kind: str
    rows_apart: bool = False


class ForwardPasses:
    """Estimates for all jobs of a batch with as few or as many passes as is fastest.

    Device thread only.  `free_memory` is called when memory ran out, before rows go one by one.
    Without `speeds` passes are as large as the limits allow.
    """

    def __init__(self, speeds: PassSpeeds | None, free_memory: Callable[[], None]) -> None:
        self.counts = ForwardCounts()
        self.speeds = speeds
        self._free_memory = free_memory
        self._last_kind = ""

    def estimate(
        self,
        denoiser: BatchDenoiser,
        asks: Sequence[Ask],
        limits: ForwardLimits,
        check: Check,
    ) -> tuple[list[dict[Way, Tensor]], int]:
        """The estimates of each job, by way, each (pictures, channels, ...).

        Beside them, the most pictures that shared a pass.
        Raises: whatever the model or `check` raises.
        """
        pictures = list(_pictures(asks))
        if limits.rows_apart:
            pictures = [[line] for picture in pictures for line in picture]
        try:
            lines, together = self._run(denoiser, pictures, limits, check)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            lines = []
        if not lines:
            # Outside of `except`: the error's traceback holds the tensors of the failed pass.
            self._free_memory()
            alone = [[line] for picture in pictures for line in picture]
            lines, together = self._run(denoiser, alone, ForwardLimits(1, ""), check)
        found: dict[tuple[int, Way], list[Tensor]] = defaultdict(list)
        for line, estimate in lines:
            found[line.job, line.way].append(estimate)
        parts = [
            {way: torch.stack(found[index, way]) for way in ask.rows}
            for index, ask in enumerate(asks)
        ]
        return parts, together

    def last_gain(self) -> float | None:
        """How many times faster a row was in the last kind of pass than alone, if measured."""
        return self.speeds.gain(self._last_kind) if self.speeds is not None else None

    def _run(
        self,
        denoiser: BatchDenoiser,
        pictures: Sequence[Sequence[_Line]],
        limits: ForwardLimits,
        check: Check,
    ) -> tuple[list[tuple[_Line, Tensor]], int]:
        """All rows with their estimates, in order; those of one picture share a pass."""
        together = 0
        available = sum(len(lines) for lines in pictures)
        least = max(len(lines) for lines in pictures)
        size, measure = available, False
        most = limits.max_pictures
        speeds = self.speeds if limits.kind and most > 1 else None
        if all(lines[0].job == 0 for lines in pictures):
            # Without company a fixed rule, so that the same job gives the same bits each time.
            speeds, most = None, min(most, _pictures_alone(pictures[0][0].latents))
        if speeds is not None:
            self._last_kind = limits.kind
            size, measure = speeds.rows_for(limits.kind, available, least)
        done: list[tuple[_Line, Tensor]] = []
        for chunk in _chunks(pictures, size, most):
            lines = [line for picture in chunk for line in picture]
            # A pass that is not full says nothing about its size.
            full = len(lines) > size - least and all(line.row.memory is None for line in lines)
            started_s = _now(lines) if measure and full else 0.0
            estimates = _passes(denoiser, lines, check)
            if speeds is not None and measure and full:
                speeds.record(limits.kind, size, (_now(lines) - started_s) / len(lines))
            done.extend(zip(lines, estimates, strict=True))
            together = max(together, len(chunk))
            self._count(len(lines), len(chunk))
        return done, together

    def _count(self, rows: int, pictures: int) -> None:
        counts = self.counts
        counts.forwards += 1
        counts.rows += rows
        counts.pictures += pictures
        counts.largest_batch = max(counts.largest_batch, pictures)


def _pictures_alone(latents: Tensor) -> int:
    """How many pictures of one job, latents (channels, ..., height, width), share a pass.

    On a processor a pass of more than about 256 tokens gains nothing by being larger.
    """
    if latents.device.type != "cpu":
        return _NO_LIMIT
    cells = latents[0].numel()
    return max(1, _CELLS_ALONE // cells)


def _pictures(asks: Sequence[Ask]) -> Iterator[list[_Line]]:
    """The rows of each picture of each job."""
    for job, ask in enumerate(asks):
        for picture in range(ask.latents.shape[0]):
            yield [
                _Line(job, picture, way, ask.seen(way)[picture], ask.sigma, rows[picture])
                for way, rows in ask.rows.items()
            ]


def _chunks(
    pictures: Sequence[Sequence[_Line]], size: int, max_pictures: int
) -> Iterator[list[Sequence[_Line]]]:
    """Whole pictures, up to `size` rows and `max_pictures` pictures at a time, at least one."""
    chunk: list[Sequence[_Line]] = []
    rows = 0
    for lines in pictures:
        if chunk and (rows + len(lines) > size or len(chunk) >= max_pictures):
            yield chunk
            chunk, rows = [], 0
        chunk.append(lines)
        rows += len(lines)
    if chunk:
        yield chunk


def _passes(denoiser: BatchDenoiser, lines: Sequence[_Line], check: Check) -> list[Tensor]:
    """The estimates of lines, in order: one pass, or one for each size of their latents."""
    sizes = dict.fromkeys(line.latents.shape for line in lines)
    if len(sizes) == 1:
        return list(_one_pass(denoiser, lines, check))
    found: dict[int, Tensor] = {}
    for size in sizes:
        places = [index for index, line in enumerate(lines) if line.latents.shape == size]
        alike = _one_pass(denoiser, [lines[index] for index in places], check)
        found.update(zip(places, alike, strict=True))
    return [found[index] for index in range(len(lines))]


def _one_pass(denoiser: BatchDenoiser, lines: Sequence[_Line], check: Check) -> Sequence[Tensor]:
    latents = torch.stack([line.latents for line in lines])  # (rows, channels, ...)
    sigmas = torch.tensor(
        [line.sigma for line in lines], dtype=torch.float32, device=latents.device
    )  # (rows,)
    return denoiser.estimate(latents, sigmas, [line.row for line in lines], check).unbind(0)


def _now(lines: Sequence[_Line]) -> float:
    """Seconds, when everything that was asked of the device is done."""
    device = lines[0].latents.device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter()
