"""Stopping a transfer from another thread, also while it waits for bytes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class Stopped(BaseException):
    """Unwinds a transfer that somebody stopped; no `except Exception` swallows it."""


class StopSignal:
    """Set once, from any thread; the worker looks at it between chunks."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._wake: Callable[[], None] | None = None

    @property
    def is_set(self) -> bool:
        """True once the transfer shall end."""
        return self._event.is_set()

    def set(self) -> None:
        """End the transfer now; idempotent."""
        self._event.set()
        with self._lock:
            if self._wake is not None:
                self._wake()

    def check(self) -> None:
        """Raises: Stopped, once it is set."""
        if self._event.is_set():
            raise Stopped

    def wait(self, seconds: float) -> None:
        """Wait at most this long.  Raises: Stopped."""
        self._event.wait(seconds)
        self.check()

    @contextlib.contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """While inside, `set` calls `wake` (on the thread that sets)."""
        with self._lock:
            self._wake = wake
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._wake = None
