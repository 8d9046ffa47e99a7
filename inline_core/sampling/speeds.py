"""How many rows are worth one forward pass: measured on this device, and remembered.

Batching pays while a pass leaves the device idle, and costs a little once it does not, so the size
of a pass is measured instead of guessed: the first steps of a new kind of pass are made in sizes of
1, 2, 4, ... rows (they are real steps, nothing is run twice), and later ones in the fastest.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final

from inline_core.kept_json import read_kept, told_anew, write_kept

SAMPLES: Final = 3
# A larger pass has to be so much faster a row: figures differ by some percent from time to time.
_WORTH_IT: Final = 0.97
_FORMAT: Final = 1
_KINDS_KEPT: Final = 512


class PassSpeeds:
    """Seconds a row by kind of pass and rows in it; any thread.

    `path` is where the figures are kept over restarts (None: nowhere).  A kind is a text that names
    everything the speed depends on: device, model, precision, picture size.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._kinds: dict[str, dict[int, list[float]]] = _read(path)

    def rows_for(self, kind: str, available: int, least: int = 1) -> tuple[int, bool]:
        """How many of `available` rows to put into one pass, and whether to measure its time.

        `least` rows belong together.  Sizes that were not measured often enough come first, the
        largest of them at the start.
        """
        sizes = _sizes(available, least)
        with self._lock:
            known = self._kinds.get(kind, {})
            for size in reversed(sizes):
                if len(known.get(size, ())) < SAMPLES:
                    return size, True
            best = sizes[0]
            for size in sizes[1:]:
                if min(known[size]) < _WORTH_IT * min(known[best]):
                    best = size
        # Nothing speaks against more than the largest size that was measured.
        return (available if best == sizes[-1] else best), False

    def record(self, kind: str, size: int, seconds_per_row: float) -> None:
        """A pass of up to `size` rows took so long."""
        with self._lock:
            samples = self._kinds.setdefault(kind, {}).setdefault(size, [])
            if len(samples) >= SAMPLES:
                return
            samples.append(seconds_per_row)
            while len(self._kinds) > _KINDS_KEPT:
                self._kinds.pop(next(iter(self._kinds)))
            complete = all(len(entry) >= SAMPLES for entry in self._kinds[kind].values())
        if complete:
            self._write()

    def gain(self, kind: str) -> float | None:
        """How many times faster a row is in the best size than alone; None while unknown."""
        with self._lock:
            known = {size: min(s) for size, s in self._kinds.get(kind, {}).items() if s}
        if len(known) < 2:  # noqa: PLR2004 - nothing to compare
            return None
        return known[min(known)] / min(known.values())

    def stats(self) -> dict[str, Any]:
        """Milliseconds a row by kind and size, for `/v1/health`."""
        with self._lock:
            return {
                kind: {str(size): round(min(s) * 1e3, 3) for size, s in sorted(known.items()) if s}
                for kind, known in self._kinds.items()
            }

    def _write(self) -> None:
        if self._path is None:
            return
        with self._lock:
            kinds = {
                kind: {str(size): list(samples) for size, samples in known.items()}
                for kind, known in self._kinds.items()
            }
        write_kept(self._path, {"format": _FORMAT, "secondsPerRow": kinds})


def _sizes(available: int, least: int) -> list[int]:
    """`least`, and the powers of two above it, up to `available`."""
    sizes = [min(least, available)]
    size = 1
    while size <= available:
        if size > least:
            sizes.append(size)
        size *= 2
    return sizes


def _read(path: Path | None) -> dict[str, dict[int, list[float]]]:
    """What an earlier server measured; a file that makes no sense counts as none."""
    document = None if path is None else read_kept(path)
    if path is None or document is None or document.get("format") != _FORMAT:
        return {}
    try:
        return {
            kind: {int(size): [float(value) for value in s] for size, s in known.items()}
            for kind, known in document["secondsPerRow"].items()
        }
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        told_anew(path, str(error))
        return {}
