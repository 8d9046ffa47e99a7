"""Stopping a run from outside: a token that everything which takes time asks."""

from __future__ import annotations

import threading
import time

from inline_core.errors import RunCancelled


class CancelToken:
    """One per running run; any thread may set or check it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.stopping = False
        self.cancelled_at: float | None = None

    def cancel(self) -> None:
        """The owner wants the run to end; it settles as cancelled."""
        if self.cancelled_at is None:
            self.cancelled_at = time.monotonic()
        self._event.set()

    def stop(self) -> None:
        """The server is stopping; the run goes back to the queue."""
        self.stopping = True
        self._event.set()

    @property
    def is_set(self) -> bool:
        """True once the run shall end."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise `RunCancelled` if the run shall end."""
        if self._event.is_set():
            raise RunCancelled

    def wait(self, timeout_s: float) -> bool:
        """Wait until the run shall end, or the time is over; gives whether it shall."""
        return self._event.wait(timeout_s)
