"""What a benchmark gives: samples of ours and of a baseline, taken in turns, and their ratio."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Better = Literal["higher", "lower"]


@dataclass(slots=True)
class Result:
    """One scenario.  `limit` is the baseline of the same rounds; `gate` is a bound of the ratio."""

    scenario: str
    unit: str
    better: Better
    us: list[float] = field(default_factory=list)
    limit: list[float] = field(default_factory=list)
    gate: float | None = None
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        """Ours over the limit, round by round."""
        return [ours / limit for ours, limit in zip(self.us, self.limit, strict=False) if limit]

    @property
    def passed(self) -> bool | None:
        """Whether the median ratio keeps the gate; None without one."""
        if self.gate is None or not self.ratios:
            return None
        ratio = statistics.median(self.ratios)
        return ratio >= self.gate if self.better == "higher" else ratio <= self.gate

    def row(self) -> tuple[str, ...]:
        """Cells of the table."""
        ratios = self.ratios
        shown = (
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
            if ratios
            else "-"
        )
        sign = ">=" if self.better == "higher" else "<="
        verdict = {None: "-", True: "ok", False: "MISSED"}[self.passed]
        gate = f"{sign} {self.gate:g}: {verdict}" if self.gate is not None else "-"
        limit = f"{statistics.median(self.limit):.4g}" if self.limit else "-"
        ours = f"{statistics.median(self.us):.4g} {self.unit}"
        return (self.scenario, ours, limit, shown, gate, self.note)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "scenario": self.scenario,
            "unit": self.unit,
            "better": self.better,
            "samples": {"us": self.us, "limit": self.limit},
            "gate": self.gate,
            "pass": self.passed,
            "note": self.note,
        }


def alternate(
    result: Result, ours: Callable[[], float], limit: Callable[[], float], rounds: int
) -> Result:
    """Measure both sides in turns, the first one changing each round."""
    for number in range(rounds):
        pair = [(result.us, ours), (result.limit, limit)]
        for samples, measure in pair if number % 2 == 0 else reversed(pair):
            samples.append(measure())
    return result


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this thread for one call."""
    started = time.thread_time()
    work()
    return time.thread_time() - started


def best_of(count: int, work: Callable[[], object]) -> float:
    """The least CPU time of several calls, in seconds."""
    return min(cpu_seconds(work) for _ in range(count))


def noise() -> dict[str, float]:
    """How calm the machine is: load, and synced writes a second."""
    with tempfile.TemporaryFile() as file:
        count = 0
        started = time.monotonic()
        while time.monotonic() - started < 0.5:
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            os.fdatasync(file.fileno())
            count += 1
    return {"load": os.getloadavg()[0], "fdatasync_per_s": count / 0.5}
