"""SHA-256 of weight files, for the provenance of takes: taken once, remembered over restarts.

Small components are hashed where they are first used; large ones in a background thread, as
gigabytes take seconds: takes made before it is done carry the stamp (size, time, header) only.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from inline_core.kept_json import read_kept, write_kept

AT_ONCE_BYTES: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_MOST_KEPT: Final = 2000
_log = structlog.get_logger(__name__)


class FileHashes:
    """Hashes by path and stamp; any thread.  `path` is where they are kept (None: nowhere)."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        self._pending = 0
        self._known = _read(path)
        self._asked: set[str] = set()
        self._queue: queue.SimpleQueue[tuple[str, tuple[Path, ...]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def find(self, name: str, stamp: str, files: Sequence[Path]) -> str | None:
        """The hash of a component of `files`, or None while it is being taken.

        `name` and `stamp` say which component in which state.  A component of several files has
        the hash of its files' hashes, in the order of their names.
        """
        key = f"{name} {stamp}"
        with self._lock:
            known = self._known.get(key)
            if known is not None or key in self._asked:
                return known
            self._asked.add(key)
        ordered = tuple(sorted(files))
        with contextlib.suppress(OSError):
            if sum(file.stat().st_size for file in ordered) <= AT_ONCE_BYTES:
                return self._take(key, ordered)
        with self._lock:
            self._pending += 1
        self._queue.put((key, ordered))
        self._ensure_started()
        return None

    def wait(self, timeout_s: float) -> bool:
        """Wait until everything that was asked for is hashed; True when it is."""
        with self._idle:
            return self._idle.wait_for(lambda: self._pending == 0, timeout_s)

    def _ensure_started(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hashes", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            key, files = self._queue.get()
            try:
                self._take(key, files)
            except OSError as error:
                _log.warning("a weight file was not hashed", file=key, why=str(error))
            with self._idle:
                self._pending -= 1
                self._idle.notify_all()

    def _take(self, key: str, files: Sequence[Path]) -> str:
        digests = [_sha256(file) for file in files]
        found = digests[0]
        if len(digests) > 1:
            found = hashlib.sha256("".join(digests).encode()).hexdigest()
        with self._lock:
            self._known[key] = found
            while len(self._known) > _MOST_KEPT:
                self._known.pop(next(iter(self._known)))
            known = dict(self._known)
        if self._path is not None:
            write_kept(self._path, known)
        return found


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        buffer = memoryview(bytearray(_CHUNK_BYTES))
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
    return digest.hexdigest()


def _read(path: Path | None) -> dict[str, str]:
    """What an earlier server took; a file that makes no sense counts as none."""
    document = None if path is None else read_kept(path)
    return {key: str(value) for key, value in (document or {}).items()}
