"""Memory that processes of one host share: files of a group that lie in memory.

A sender keeps a few files and writes into them again and again, as new pages cost more than the
copying; the receiver works in them, and a file is free again when it has dropped what lay there.
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
from typing import Any, BinaryIO, Final

import numpy as np
import psutil

_PREFIX: Final = "inline-core-"
_ALIGNED: Final = 64
_HEAD_BYTES: Final = 64
_BUSY: Final = b"\1"  # the first byte of a kept file until its receiver needs it no more
_FREE: Final = b"\0"
# Containers often have 64 MB of such memory, and NCCL wants some of it.
_KEPT: Final = 3
_KEPT_BYTES: Final = 8 * 1024**2

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
        self._kept: dict[Path, BinaryIO] = {}

    def write(self, blobs: Blobs) -> tuple[Path, bool] | None:
        """The blobs in a file, and whether it is used again (see `SharedReader`).

        None where there is no room (containers have little).
        """
        size = sum(_room(blob) for blob in blobs)
        with self._lock:
            path, file = self._free_file() or self._new_file()
            if file is None:
                return None
            try:
                # Written, not mapped: a page that is not there fails a write, and would end this
                # process in a mapping.
                file.seek(0)
                file.write(_BUSY.ljust(_HEAD_BYTES, b"\0"))
                for blob in blobs:
                    file.write(blob.data)
                    file.write(bytes(_room(blob) - blob.nbytes))
                file.flush()
            except OSError:
                self._drop(path, file, unlink=True)
                return None
            if size > _KEPT_BYTES or (len(self._kept) == _KEPT and path not in self._kept):
                self._drop(path, file, unlink=False)
                return path, False
            self._kept[path] = file
            return path, True

    def close(self) -> None:
        """Remove the files that were kept."""
        with self._lock:
            for path, file in list(self._kept.items()):
                self._drop(path, file, unlink=True)

    def _free_file(self) -> tuple[Path, BinaryIO] | None:
        for path, file in self._kept.items():
            if os.pread(file.fileno(), 1, 0) == _FREE:
                return path, file
        return None

    def _new_file(self) -> tuple[Path, BinaryIO | None]:
        path = Path(self._prefix + secrets.token_hex(8))
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError:
            return path, None
        return path, os.fdopen(handle, "r+b")

    def _drop(self, path: Path, file: BinaryIO, *, unlink: bool) -> None:
        self._kept.pop(path, None)
        with contextlib.suppress(OSError):
            file.close()
        if unlink:
            path.unlink(missing_ok=True)


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
        # A file that is not kept any more is let go of here, too.
        memory = self._kept.pop(path, None)
        if memory is None or not kept or len(memory) < length:
            memory = _mapped(Path(path), unlink=not kept)
        if len(memory) < length:
            text = f"{path} is shorter than it says"
            raise ValueError(text)
        whole = np.frombuffer(memory, np.uint8)
        if kept:
            self._kept[path] = memory
            # All blobs are views of `whole`, and hold it.
            weakref.finalize(whole, memory.__setitem__, 0, _FREE[0]).atexit = False
        places = itertools.accumulate(rooms, initial=_HEAD_BYTES)
        return [whole[place : place + size] for place, size in zip(places, sizes, strict=False)]


def _mapped(path: Path, *, unlink: bool) -> mmap.mmap:
    with path.open("r+b") as file:
        if unlink:
            path.unlink(missing_ok=True)
        # All pages at once, not one fault for each.
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        return mmap.mmap(file.fileno(), 0, flags=flags)


def _room(blob: np.ndarray[Any, Any]) -> int:
    return _rounded(blob.nbytes)


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
