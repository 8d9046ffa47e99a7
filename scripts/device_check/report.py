"""What was measured: rows with a bound, failures by name, a table and JSON."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

NOT_HERE: Final = "not measured on cpu"
_HEAD: Final = ("section", "what", "value", "limit", "ratio", "gate", "note")


@dataclass(frozen=True, slots=True)
class Row:
    """One value.  `ratio` is value over limit; the gate asks `at_least` <= ratio <= `at_most`.

    A value of None was not measured, and its gate is neither kept nor missed.
    """

    section: str
    what: str
    value: float | None
    unit: str
    limit: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Value over limit."""
        if self.value is None or not self.limit:
            return None
        return self.value / self.limit

    @property
    def passed(self) -> bool | None:
        """Whether the gate holds; None without a gate or a value."""
        ratio = self.ratio
        if ratio is None or (self.at_least is None and self.at_most is None):
            return None
        low = self.at_least is None or ratio >= self.at_least
        return low and (self.at_most is None or ratio <= self.at_most)

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        bounds = [
            f"{sign} {bound:g}"
            for sign, bound in ((">=", self.at_least), ("<=", self.at_most))
            if bound is not None
        ]
        verdict = {None: "", True: " ok", False: " MISSED"}[self.passed]
        return (
            self.section,
            self.what,
            "-" if self.value is None else f"{self.value:.4g} {self.unit}",
            "-" if self.limit is None else f"{self.limit:.4g}",
            "-" if self.ratio is None else f"{self.ratio:.3g}",
            (" ".join(bounds) or "-") + verdict,
            self.note if self.value is not None else (self.note or NOT_HERE),
        )

    def as_json(self) -> dict[str, Any]:
        """For `--json`, in the words of the benchmarks."""
        return {
            "scenario": f"{self.section}: {self.what}",
            "unit": self.unit,
            "samples": {
                "us": [] if self.value is None else [self.value],
                "limit": [] if self.limit is None else [self.limit],
            },
            "ratio": self.ratio,
            "gate": {"atLeast": self.at_least, "atMost": self.at_most},
            "pass": self.passed,
            "note": self.note,
        }


@dataclass(slots=True)
class Report:
    """Collects rows and what went wrong, so that a cut-off run still shows what it has."""

    env: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    started_s: float = field(default_factory=time.monotonic)

    def add(self, row: Row) -> None:
        """Keep a row and say it at once."""
        self.rows.append(row)
        print(
            "  " + "  ".join(cell for cell in row.cells()[1:] if cell not in {"-", ""}), flush=True
        )

    def fail(self, section: str, reason: str) -> None:
        """Keep the failure of a section."""
        self.failures.append((section, reason))
        print(f"  FAILED: {reason}", flush=True)

    @property
    def ok(self) -> bool:
        """Every section ran to its end and no gate was missed."""
        return not self.failures and all(row.passed is not False for row in self.rows)

    def table(self) -> str:
        """All rows and failures for a terminal."""
        cells = [_HEAD, *(row.cells() for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        lines += [f"FAILED {section}: {reason}" for section, reason in self.failures]
        missed = sum(row.passed is False for row in self.rows)
        kept = sum(row.passed is True for row in self.rows)
        took = time.monotonic() - self.started_s
        lines.append(
            f"{kept} gates hold, {missed} are missed, {len(self.failures)} failures; {took:.0f} s"
        )
        return "\n".join(lines)

    def save(self, path: Path) -> None:
        """Write everything as JSON."""
        body = {
            "schema": 1,
            "env": self.env,
            "seconds": self.seconds,
            "results": [row.as_json() for row in self.rows],
            "failures": [{"section": name, "reason": reason} for name, reason in self.failures],
            "pass": self.ok,
        }
        path.write_text(json.dumps(body, indent=1), encoding="utf-8")
