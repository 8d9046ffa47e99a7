"""An authenticated connection between the server and one rank; large tensors by shared memory.

Messages are dictionaries of what `codec` can pack.  Tensors go beside them: in a file of shared
memory that the receiver unlinks as it maps it, or in the message itself when the other end is on
another host or they are small.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import queue
import secrets
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Sequence
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
_CLOSE_WAIT_S: Final = 5.0
_HEAD: Final = struct.Struct("<IIB")  # length of the structure, number of blobs, shared or not


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


class Channel:
    """Sends and receives messages; sending is safe from any thread, receiving from one.

    `memory` is how files of memory that both ends see begin (`shared_prefix`); empty when the
    other end is on another host.
    """

    def __init__(self, connection: Connection, *, memory: str) -> None:
        self._connection = connection
        self._memory = memory
        self._sending = threading.Lock()
        self._closing = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message.  Raises: OSError when the other end is gone, Internal."""
        self.write(self.packed(message))

    def packed(self, message: dict[str, Any]) -> bytes:
        """A message for `write`.  Raises: Internal for what cannot be sent."""
        body, blobs = pack(message)
        size = sum(_room(blob) for blob in blobs)
        path = self._shared(blobs, size) if self._memory and size >= _SHARED_FROM_BYTES else None
        sizes = struct.pack(f"<{len(blobs)}Q", *(blob.nbytes for blob in blobs))
        head = _HEAD.pack(len(body), len(blobs), int(path is not None)) + sizes
        tail = (blob.tobytes() for blob in blobs) if path is None else (str(path).encode(),)
        return b"".join((head, body, *tail))

    def write(self, data: bytes) -> None:
        """Send what `packed` gave; waits while the other end takes nothing.  Raises: OSError."""
        with self._sending:
            self._connection.send_bytes(data)

    def receive(self) -> dict[str, Any]:
        """The next message; waits for it.

        Raises: EOFError or OSError when the other is gone, Internal for what is no message.
        """
        data = memoryview(self._connection.recv_bytes())
        try:
            message = self._read(data)
        except (struct.error, ValueError) as error:
            text = f"a message of another process cannot be read: {error}"
            raise Internal(text) from error
        if not isinstance(message, dict):
            text = "a message of another process is not a dictionary"
            raise Internal(text)
        return message

    def hang_up(self) -> None:
        """Wake whoever sends or receives, here and there; the owner still has to `close`."""
        # Closing alone would leave them waiting, and perhaps on a number that is used again.
        with self._closing, contextlib.suppress(OSError):
            if not self._connection.closed:
                whole = socket.socket(fileno=os.dup(self._connection.fileno()))
                with whole:
                    whole.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the other end sees the end of it.  Nobody may be using it."""
        with self._closing, contextlib.suppress(OSError):
            self._connection.close()

    def _read(self, data: memoryview) -> Any:
        length, count, shared = _HEAD.unpack_from(data)
        sizes = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
        start = _HEAD.size + 8 * count
        body, tail = data[start : start + length], data[start + length :]
        if not shared:
            return unpack(bytes(body), _cut(tail, sizes))
        path = bytes(tail).decode()
        if (
            not self._memory
            or not path.startswith(self._memory)
            or "/" in path[len(self._memory) :]
        ):
            text = "a message of another process names memory that is not of its group"
            raise Internal(text)
        return unpack(bytes(body), _mapped(Path(path), sizes))

    def _shared(self, blobs: Sequence[np.ndarray[Any, Any]], size: int) -> Path | None:
        """A new file with the blobs; None where there is no room (containers have little)."""
        path = Path(self._memory + secrets.token_hex(8))
        try:
            _fill(path, blobs, size)
        except OSError:
            path.unlink(missing_ok=True)
            return None
        return path


class Outbox:
    """Sends on a thread of its own: who posts never waits for an end that takes nothing.

    `lost` is called on that thread when the other end is gone.
    """

    def __init__(self, channel: Channel, lost: Callable[[], None]) -> None:
        self._channel = channel
        self._lost = lost
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="group-send", daemon=True)
        self._thread.start()

    def post(self, **message: Any) -> None:
        """Send a message some time.  Raises: Internal for what cannot be sent."""
        self._waiting.put(self._channel.packed(message))

    def close(self) -> None:
        """Hang up; nothing that waits is sent any more."""
        self._channel.hang_up()
        self._waiting.put(None)
        self._thread.join(_CLOSE_WAIT_S)

    def _run(self) -> None:
        while (data := self._waiting.get()) is not None:
            try:
                self._channel.write(data)
            except OSError:
                self._lost()
                return


def _room(blob: np.ndarray[Any, Any]) -> int:
    return -(-blob.nbytes // _ALIGNED) * _ALIGNED


def _fill(path: Path, blobs: Sequence[np.ndarray[Any, Any]], size: int) -> None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        # Not `ftruncate`: writing to memory that is not there would end this process.
        os.posix_fallocate(handle, 0, size)
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
