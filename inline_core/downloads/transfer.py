"""One file from the hub into a partial file: resumed, retried, measured and hashed on the way."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from inline_core.downloads.hub import ConnectionCut, Hub, RemoteFile, wrong_size
from inline_core.downloads.stop import StopSignal
from inline_core.errors import HashMismatch, HubUnreachable, SizeMismatch

_READ_BYTES: Final = 1024 * 1024
_SHA256_DIGITS: Final = 64
# Tries in a row that bring nothing; then the download fails, and can be resumed by hand.
_MOST_FRUITLESS: Final = 4


class Checksum:
    """The hash of a file in the hub's way: sha256, or sha1 of a git blob of `size_bytes`."""

    def __init__(self, digest: str, size_bytes: int) -> None:
        if len(digest) == _SHA256_DIGITS:
            self.name = "sha256"
            self._hash = hashlib.sha256()
        else:
            self.name = "git-sha1"
            self._hash = hashlib.sha1(usedforsecurity=False)
            self._hash.update(b"blob %d\0" % size_bytes)

    def update(self, chunk: bytes) -> None:
        """Add the next bytes."""
        self._hash.update(chunk)

    def hexdigest(self) -> str:
        """The hash of what was added."""
        return self._hash.hexdigest()


def file_digest(path: Path, remote: RemoteFile, stop: StopSignal | None = None) -> str:
    """The hash of a file on the disk, in the way the hub hashes `remote`.

    Raises: OSError, Stopped.
    """
    checksum = Checksum(remote.digest, remote.size_bytes)
    with path.open("rb") as file:
        _add(file, checksum, stop)
    return checksum.hexdigest()


class _Partial:
    """An open partial file with the hash of what is in it."""

    def __init__(self, file: BinaryIO, remote: RemoteFile, stop: StopSignal) -> None:
        self._file = file
        self._remote = remote
        self.checksum = Checksum(remote.digest, remote.size_bytes)
        file.seek(0)
        self.size = _add(file, self.checksum, stop)

    def append(self, chunk: bytes) -> None:
        """Add bytes.  Raises: SizeMismatch (the file is empty then), OSError."""
        if self.size + len(chunk) > self._remote.size_bytes:
            raise self.wrong_size(self.size + len(chunk))
        self._file.write(chunk)
        self.checksum.update(chunk)
        self.size += len(chunk)

    def restart(self) -> None:
        """Throw everything away."""
        self._file.seek(0)
        self._file.truncate()
        self.checksum = Checksum(self._remote.digest, self._remote.size_bytes)
        self.size = 0

    def wrong_size(self, found: int) -> SizeMismatch:
        """The error for a wrong length; the bytes are thrown away."""
        self.restart()
        return wrong_size(self._remote, found)


def fetch(
    hub: Hub,
    remote: RemoteFile,
    path: Path,
    stop: StopSignal,
    report: Callable[[int], None],
    pause_s: Callable[[int], float],
) -> None:
    """Bring the partial file at `path` to its full length and check it.

    Bytes that are there are not fetched again.  `report` hears how many there are; `pause_s` says
    how long to wait before try number n after one that brought nothing.  Bytes that are not what
    the hub says are removed.
    Raises: ConnectionCut, HashMismatch, SizeMismatch, OSError, Stopped and what `Hub.open` raises.
    """
    if path.exists() and path.stat().st_size > remote.size_bytes:
        path.unlink()
    try:
        _fill(hub, remote, path, stop, report, pause_s)
    except (HashMismatch, SizeMismatch):
        path.unlink(missing_ok=True)
        raise


def _fill(
    hub: Hub,
    remote: RemoteFile,
    path: Path,
    stop: StopSignal,
    report: Callable[[int], None],
    pause_s: Callable[[int], float],
) -> None:
    with path.open("a+b") as file:
        partial = _Partial(file, remote, stop)
        report(partial.size)
        fruitless = 0
        while partial.size < remote.size_bytes:
            before = partial.size
            try:
                _receive(hub, remote, partial, stop, report)
            except (ConnectionCut, HubUnreachable):
                stop.check()
                fruitless = 0 if partial.size > before else fruitless + 1
                if fruitless > _MOST_FRUITLESS:
                    raise
                if fruitless:
                    stop.wait(pause_s(fruitless))
        file.flush()
        os.fsync(file.fileno())
        found = partial.checksum.hexdigest()
        if found != remote.digest:
            partial.restart()
            raise _wrong_hash(remote, partial.checksum.name, found)


def _receive(
    hub: Hub,
    remote: RemoteFile,
    partial: _Partial,
    stop: StopSignal,
    report: Callable[[int], None],
) -> None:
    """Append what one answer brings."""
    with hub.open(remote, partial.size, stop) as reply:
        if reply.start != partial.size:
            partial.restart()
        for chunk in reply.chunks:
            stop.check()
            partial.append(chunk)
            report(partial.size)
    stop.check()
    if partial.size < remote.size_bytes:
        raise partial.wrong_size(partial.size)


def _wrong_hash(remote: RemoteFile, name: str, found: str) -> HashMismatch:
    message = (
        f"{remote.label} is not what the hub says: its {name} is {found}, expected "
        f"{remote.digest}. What came was thrown away. Try again; if it stays so, the repository "
        "or the mirror is broken."
    )
    details = {"file": remote.label, "expected": remote.digest, "found": found}
    return HashMismatch(message, details=details)


def _add(file: BinaryIO, checksum: Checksum, stop: StopSignal | None) -> int:
    """Hash what is left of a file; its length."""
    while chunk := file.read(_READ_BYTES):
        if stop is not None:
            stop.check()
        checksum.update(chunk)
    return file.tell()
