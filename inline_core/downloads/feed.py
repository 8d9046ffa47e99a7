"""News of downloads for many readers: no state change is lost, progress is overwritten."""

from __future__ import annotations

import threading
from collections.abc import Callable

from inline_core.downloads.record import Download


class Reader:
    """What one reader has not seen yet.  Any thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._changes: list[Download] = []
        self._progress: dict[str, Download] = {}

    def offer(self, download: Download, *, changed: bool) -> None:
        """Take a new state (`changed`), or a new count of bytes."""
        with self._lock:
            idle = not self._changes and not self._progress
            if changed:
                self._progress.pop(download.id, None)
                self._changes.append(download)
            else:
                self._progress[download.id] = download
        if idle or changed:
            self._wake()

    def changes(self) -> list[Download]:
        """New states in their order."""
        with self._lock:
            taken, self._changes = self._changes, []
            return taken

    @property
    def has_progress(self) -> bool:
        """Whether there are counts of bytes to take."""
        return bool(self._progress)

    def progress(self) -> list[Download]:
        """The newest counts of bytes."""
        with self._lock:
            taken = list(self._progress.values())
            self._progress.clear()
            return taken


class Feed:
    """Hands news to every open reader.  Any thread."""

    def __init__(self) -> None:
        self._readers: tuple[Reader, ...] = ()
        self._lock = threading.Lock()

    def open(self, wake: Callable[[], None]) -> Reader:
        """A reader of everything from now on; `wake` is called from any thread."""
        reader = Reader(wake)
        with self._lock:
            self._readers += (reader,)
        return reader

    def close(self, reader: Reader) -> None:
        """Tell a reader nothing more; idempotent."""
        with self._lock:
            self._readers = tuple(other for other in self._readers if other is not reader)

    def publish(self, download: Download, *, changed: bool) -> None:
        """Tell all readers."""
        for reader in self._readers:
            reader.offer(download, changed=changed)
