"""An authenticated connection between the server and one rank; large tensors by shared memory.

Messages are dictionaries of what `codec` can pack.  Tensors go beside them: in a file of shared
memory that the receiver unlinks as it maps it, or in the message itself when the other end is on
another host or they are small.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import struct
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from inline_core.errors import Internal
from inline_core.sampling.backends.parallel.codec import pack, unpack

_SHARED_FROM_BYTES: Final = 256 * 1024
_ALIGNED: Final = 64
_PREFIX: Final = "inline-core-"
_HEAD: Final = struct.Struct("<IIB")  # length of the structure, number of blobs, shared or not


def shared_folder() -> Path | None:
    """Where files are memory; None where there is no such place."""
    folder = Path("/dev/shm")  # noqa: S108 - files of random names, created exclusively, mode 600
    return folder if folder.is_dir() and os.access(folder, os.W_OK) else None


def sweep_shared() -> int:
    """Remove what processes that are gone have left in shared memory; gives how many files."""
    folder, removed = shared_folder(), 0
    for path in folder.glob(f"{_PREFIX}*") if folder is not None else ():
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
    return removed


class Channel:
    """Sends and receives messages; sending is safe from any thread, receiving from one.

    `same_host` says that the other end sees the same memory.
    """

    def __init__(self, connection: Connection, *, same_host: bool) -> None:
        self.connection = connection
        self._folder = shared_folder() if same_host else None
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message.  Raises: OSError when the other end is gone, Internal."""
        body, blobs = pack(message)
        size = sum(_room(blob) for blob in blobs)
        shared = self._folder is not None and size >= _SHARED_FROM_BYTES
        sizes = struct.pack(f"<{len(blobs)}Q", *(blob.nbytes for blob in blobs))
        head = _HEAD.pack(len(body), len(blobs), int(shared)) + sizes
        if shared:
            assert self._folder is not None
            path = self._folder / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
            _fill(path, blobs, size)
            tail = str(path).encode()
        else:
            tail = b"".join(blob.tobytes() for blob in blobs)
        with self._lock:
            self.connection.send_bytes(head + body + tail)

    def receive(self) -> dict[str, Any]:
        """The next message; waits for it.  Raises: EOFError or OSError when the other is gone."""
        data = memoryview(self.connection.recv_bytes())
        length, count, shared = _HEAD.unpack_from(data)
        sizes = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
        start = _HEAD.size + 8 * count
        body, tail = data[start : start + length], data[start + length :]
        blobs = _mapped(Path(bytes(tail).decode()), sizes) if shared else _cut(tail, sizes)
        message = unpack(bytes(body), blobs)
        if not isinstance(message, dict):
            text = "a message of another process is not a dictionary"
            raise Internal(text)
        return message

    def close(self) -> None:
        """Close the connection; the other end sees the end of it."""
        with contextlib.suppress(OSError):
            self.connection.close()


def _room(blob: np.ndarray[Any, Any]) -> int:
    return -(-blob.nbytes // _ALIGNED) * _ALIGNED


def _fill(path: Path, blobs: Sequence[np.ndarray[Any, Any]], size: int) -> None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(handle, size)
        with mmap.mmap(handle, size) as memory:
            place = 0
            for blob in blobs:
                memory[place : place + blob.nbytes] = blob.data
                place += _room(blob)
    finally:
        os.close(handle)


def _mapped(path: Path, sizes: Sequence[int]) -> list[np.ndarray[Any, Any]]:
    """The blobs of a shared file, which is gone once nobody holds them any more."""
    handle = os.open(path, os.O_RDWR)
    try:
        # Private: what a solver writes into its latents is nobody else's business.
        memory = mmap.mmap(handle, 0, flags=mmap.MAP_PRIVATE)
    finally:
        os.close(handle)
        path.unlink(missing_ok=True)
    whole = np.frombuffer(memory, np.uint8)
    found, place = [], 0
    for size in sizes:
        found.append(whole[place : place + size])
        place += -(-size // _ALIGNED) * _ALIGNED
    return found


def _cut(tail: memoryview, sizes: Sequence[int]) -> list[np.ndarray[Any, Any]]:
    """The blobs that lie in the message itself, copied: they may be written to."""
    found, place = [], 0
    for size in sizes:
        found.append(np.frombuffer(bytearray(tail[place : place + size]), np.uint8))
        place += size
    return found
