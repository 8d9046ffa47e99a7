"""How often a run may be previewed: rarely enough that nobody notices what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

LEAST_S: Final = 0.1
SHARE: Final = 0.01
FIRST_S: Final = 2.0


class PreviewPace:
    """Spaces the previews of one run.  Not thread-safe: its owner holds a lock around `due`.

    There are at most ten a second, and each is paid for by the wait after it, so that encoding
    takes at most 1 % of the time: one that took 5 ms is followed by another after 500 ms, be these
    three steps or thirty.  Steps that are long enough are all shown.

    `expected_s` is what the last preview of any run took: the first one waits for its share too,
    but for two seconds at most, since another model's previews may cost something else.
    """

    def __init__(
        self, expected_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._not_before = clock() + min(expected_s / SHARE, FIRST_S)
        self._busy = False
        self.cost_s = expected_s

    def due(self) -> bool:
        """Say whether a preview may be made now; who hears yes calls `make`."""
        if self._busy or self._clock() < self._not_before:
            return False
        self._busy = True
        return True

    def make(self, encode: Callable[[], T]) -> T:
        """Encode and measure how long it takes."""
        started = self._clock()
        try:
            return encode()
        finally:
            ended = self._clock()
            self.cost_s = ended - started
            self._not_before = max(started + LEAST_S, started + self.cost_s / SHARE)
            self._busy = False
