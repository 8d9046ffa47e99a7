"""Content-addressed files: written once, to a temporary name first, never overwritten."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from inline_core.errors import DiskFull, Forbidden, PayloadTooLarge

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = ".part-"
_READ_BYTES = 1024 * 1024


def confined(root: Path, path: Path) -> Path:
    """Resolve `path` (links and `..` included), then check that it lies below `root`.

    Raises: Forbidden.  The one resolver for every file that is read for a client.
    """
    resolved = path.resolve()
    if not resolved.is_relative_to(root.resolve()):
        message = "That path is outside the folders the server may read."
        raise Forbidden(message)
    return resolved


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Turn "no space left" into `DiskFull`, naming what was being written."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            message = f"The disk is full: {what} was not written. Free some space and retry."
            raise DiskFull(message) from error
        raise


class ContentFiles:
    """A folder of files named by the SHA-256 of their content (takes, assets).

    Every method may be called from any thread.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._pins: Counter[str] = Counter()
        self._lock = threading.Lock()
        root.mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str, extension: str) -> Path:
        """Where a file with this hash lives, confined to the root.  Raises: Forbidden."""
        if not _SHA256.fullmatch(sha256):
            message = "That is not a content hash."
            raise Forbidden(message)
        return confined(self.root, self.root / sha256[:2] / f"{sha256}.{extension}")

    def write(self, data: bytes, extension: str) -> str:
        """Store bytes durably (fsync, then rename, then fsync of the folder); gives the SHA-256.

        The file is pinned until `release`, so that deleting another take with the same bytes
        cannot remove it before the row that refers to it is stored.  Raises: DiskFull.
        """
        sha256 = hashlib.sha256(data).hexdigest()
        with self._lock:
            self._pins[sha256] += 1
        with disk_errors("a take"):
            target = self.path(sha256, extension)
            if target.exists() and target.stat().st_size == len(data):
                return sha256
            temporary = self._temporary()
            try:
                with temporary.open("xb") as file:
                    file.write(data)
                    _sync(file)
                self._settle(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
        return sha256

    @contextmanager
    def temporary(self) -> Iterator[Path]:
        """A path for a file that is made in pieces or by a program; `adopt` it, or it is removed.

        Files beside it whose names begin with its name count as temporary too.
        """
        path = self._temporary()
        try:
            yield path
        finally:
            for leftover in (path, *self.root.glob(f"{path.name}*")):
                leftover.unlink(missing_ok=True)

    def adopt(self, path: Path, extension: str) -> tuple[str, int]:
        """Store a finished file of `temporary` as `write` does; gives the SHA-256 and the size.

        It is pinned until `release`.  Raises: DiskFull.
        """
        sha256, size = sha256_of(path), path.stat().st_size
        with self._lock:
            self._pins[sha256] += 1
        with disk_errors("a take"):
            target = self.path(sha256, extension)
            if not target.exists() or target.stat().st_size != size:
                with path.open("rb+") as file:
                    _sync(file)
                self._settle(path, target)
        return sha256, size

    @contextmanager
    def incoming(self, limit_bytes: int, setting: str) -> Iterator[IncomingFile]:
        """A file that arrives in pieces; it is dropped unless `keep` was called."""
        temporary = self._temporary()
        with disk_errors("an upload"), temporary.open("xb") as file:
            incoming = IncomingFile(self, temporary, file, limit_bytes, setting)
            try:
                yield incoming
            finally:
                file.close()
                temporary.unlink(missing_ok=True)

    def release(self, sha256: str) -> None:
        """The row that refers to a written file is stored (or never will be)."""
        with self._lock:
            self._pins[sha256] -= 1
            if self._pins[sha256] <= 0:
                del self._pins[sha256]

    def delete(self, sha256: str, extension: str) -> None:
        """Free the bytes unless they are pinned; a file that is already gone is fine."""
        with self._lock:
            if sha256 not in self._pins:
                self.path(sha256, extension).unlink(missing_ok=True)

    def sweep(self) -> int:
        """Remove temporary files that a crash left behind; gives how many."""
        orphans = list(self.root.glob(f"{_TEMPORARY}*"))
        for orphan in orphans:
            orphan.unlink(missing_ok=True)
        return len(orphans)

    def _temporary(self) -> Path:
        return self.root / f"{_TEMPORARY}{secrets.token_hex(8)}"

    def _settle(self, temporary: Path, target: Path) -> None:
        target.parent.mkdir(exist_ok=True)
        temporary.replace(target)
        if os.name == "posix":
            _sync_folder(target.parent)


class IncomingFile:
    """One upload on its way to the disk: hashed as it comes, cut at the cap."""

    def __init__(
        self, files: ContentFiles, path: Path, file: BinaryIO, limit_bytes: int, setting: str
    ) -> None:
        self.path = path
        self.size_bytes = 0
        self._files = files
        self._file = file
        self._limit_bytes = limit_bytes
        self._setting = setting
        self._hash = hashlib.sha256()

    def write(self, chunk: bytes) -> None:
        """Append a piece.  Raises: PayloadTooLarge, DiskFull."""
        self.size_bytes += len(chunk)
        if self.size_bytes > self._limit_bytes:
            message = (
                f"The upload is larger than the limit of {self._limit_bytes} bytes "
                f"(setting {self._setting})."
            )
            raise PayloadTooLarge(message, details={"limitBytes": self._limit_bytes})
        self._hash.update(chunk)
        self._file.write(chunk)

    @property
    def sha256(self) -> str:
        """Hash of what came so far."""
        return self._hash.hexdigest()

    def flush(self) -> None:
        """Make the bytes readable (and durable) under the temporary path."""
        _sync(self._file)

    def keep(self, extension: str) -> str:
        """Give the file its final, content-addressed name; gives the SHA-256."""
        self.flush()
        target = self._files.path(self.sha256, extension)
        self._files._settle(self.path, target)  # noqa: SLF001 - two halves of one class
        return self.sha256


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
