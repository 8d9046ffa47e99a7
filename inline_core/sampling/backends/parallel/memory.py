"""Memory that processes of one host share: files of a group that lie in memory.

A sender keeps a few files and writes into them again and again, as new pages cost more than the
copying; the receiver works in them, and a file is free again when it has dropped what lay there.

Not `multiprocessing.shared_memory`: it makes memory that may not be there, as containers have
little, and writing to that would end the process.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import secrets
import shutil
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

_PREFIX: Final = "inline-core-"
_ALIGNED: Final = 64
_HEAD_BYTES: Final = 64
_BUSY: Final = 1  # the first byte of a kept file until its receiver needs it no more
_FREE: Final = 0
# Containers often have 64 MB of such memory, and NCCL wants some of it.
_MOST_KEPT: Final = 3
_MOST_KEPT_BYTES: Final = 8 * 1024**2

Blobs = Sequence[np.ndarray[Any, Any]]


def shared_folder() -> Path | None:
    """Where files are memory; None where there is no such place."""
    folder = Path("/dev/shm")  # noqa: S108 - files of random names, created exclusively, mode 600
    return folder if folder.is_dir() and os.access(folder, os.W_OK) else None


def shared_prefix() -> str:
    """How all files of shared memory of one new group begin; empty where there can be none.

    This process is their owner, whoever writes them: they are swept when it is gone.
    """
    folder = shared_folder()
    if folder is None:
        return ""
    return str(folder / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}-")


def remove_shared(prefix: str) -> None:
    """Remove what a group that has ended has left in shared memory."""
    if prefix:
        for path in Path(prefix).parent.glob(f"{Path(prefix).name}*"):
            with contextlib.suppress(OSError):
                path.unlink()


def sweep_left(folder: Path | None, prefix: str) -> int:
    """Remove files and folders named PREFIX PID-... of processes that are gone; gives a count."""
    removed = 0
    for path in folder.glob(f"{prefix}*-*") if folder is not None else ():
        owner = path.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            with contextlib.suppress(OSError):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
                removed += 1
    return removed


def sweep_shared() -> int:
    """Remove what processes that are gone have left in shared memory; gives how many files."""
    return sweep_left(shared_folder(), _PREFIX)


class SharedFiles:
    """The files of one sender.  Any thread."""

    def __init__(self, prefix: str) -> None:
        """`prefix` is that of the group (`shared_prefix`)."""
        self._prefix = prefix
        self._lock = threading.Lock()
        self._kept: dict[Path, mmap.mmap] = {}

    def write(self, blobs: Blobs) -> tuple[Path, bool] | None:
        """The blobs in a file, and whether it is used again (see `SharedReader`).

        None where there is no room (containers have little).
        """
        length = _HEAD_BYTES + sum(_room(blob) for blob in blobs)
        with self._lock:
            path = self._free_file(length)
            if path is not None:
                _copy(self._kept[path], blobs)
                return path, True
            path = Path(self._prefix + secrets.token_hex(8))
            keep = length <= _MOST_KEPT_BYTES and len(self._kept) < _MOST_KEPT
            try:
                _fill(path, blobs)
                if keep:
                    self._kept[path] = _mapped(path)
            except OSError:
                path.unlink(missing_ok=True)
                return None
            return path, keep

    def close(self) -> None:
        """Remove the files that were kept."""
        with self._lock:
            for path in self._kept:
                path.unlink(missing_ok=True)
            self._kept.clear()

    def _free_file(self, length: int) -> Path | None:
        """A kept file that nobody needs; those that are too short make room for a new one."""
        for path, memory in list(self._kept.items()):
            if memory[0] == _FREE and len(memory) >= length:
                return path
            if memory[0] == _FREE and length <= _MOST_KEPT_BYTES:
                del self._kept[path]
                path.unlink(missing_ok=True)
        return None


def _fill(path: Path, blobs: Blobs) -> None:
    # Written, not mapped: a page that is not there fails a write, and would end this process in a
    # mapping.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(bytes([_BUSY]).ljust(_HEAD_BYTES, b"\0"))
        for blob in blobs:
            file.write(blob.data)
            file.write(bytes(_room(blob) - blob.nbytes))


def _copy(memory: mmap.mmap, blobs: Blobs) -> None:
    """Into pages that are there, which takes half of the time of writing."""
    whole = np.frombuffer(memory, np.uint8)
    whole[0] = _BUSY
    place = _HEAD_BYTES
    for blob in blobs:
        whole[place : place + blob.nbytes] = blob
        place += _room(blob)


class SharedReader:
    """The files of the other end.  One thread; what was read may be dropped on any."""

    def __init__(self, prefix: str) -> None:
        """Only files of this prefix are opened."""
        self._prefix = prefix
        self._kept: dict[str, mmap.mmap] = {}

    def read(self, path: str, sizes: Sequence[int], *, kept: bool) -> list[np.ndarray[Any, Any]]:
        """The blobs of a file.  They may be written to: the sender does not look there.

        A file that is not kept is gone when nobody holds them any more.

        Raises: OSError where it cannot be read, ValueError where it is another group's or shorter
        than that.
        """
        if not path.startswith(self._prefix) or "/" in path[len(self._prefix) :]:
            text = "it names memory that is not of its group"
            raise ValueError(text)
        rooms = [_rounded(size) for size in sizes]
        length = _HEAD_BYTES + sum(rooms)
        memory = self._kept.get(path)
        if memory is None:
            memory = _mapped(Path(path))
            if kept:
                # Those that the sender has removed are let go of here, too.
                left = {name: one for name, one in self._kept.items() if Path(name).exists()}
                self._kept = {**left, path: memory}
            else:
                Path(path).unlink(missing_ok=True)
        if len(memory) < length:
            text = f"{path} is shorter than it says"
            raise ValueError(text)
        whole = np.frombuffer(memory, np.uint8)
        if kept:
            # All blobs are views of `whole`, and hold it.
            weakref.finalize(whole, memory.__setitem__, 0, _FREE).atexit = False
        places = itertools.accumulate(rooms, initial=_HEAD_BYTES)
        return [whole[place : place + size] for place, size in zip(places, sizes, strict=False)]


def _mapped(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        # All pages at once, not one fault for each.
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        return mmap.mmap(file.fileno(), 0, flags=flags)


def _room(blob: np.ndarray[Any, Any]) -> int:
    return _rounded(blob.nbytes)


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
