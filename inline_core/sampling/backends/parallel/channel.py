"""An authenticated connection between the server and one rank; large tensors by shared memory.

Messages are dictionaries of what `codec` can pack.  Tensors go beside them: in a file of shared
memory, or in the message itself when the other end is on another host or they are small.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np

from inline_core.errors import Internal
from inline_core.sampling.backends.parallel.codec import pack, unpack
from inline_core.sampling.backends.parallel.memory import SharedFiles, SharedReader

_SHARED_FROM_BYTES: Final = 256 * 1024
_CLOSE_WAIT_S: Final = 5.0
_HEAD: Final = struct.Struct("<IIB")  # length of the structure, number of blobs, where they are
_INLINE, _ONCE, _KEPT = range(3)


class Channel:
    """Sends and receives messages; sending is safe from any thread, receiving from one.

    `memory` is how files of memory that both ends see begin (`shared_prefix`); empty when the
    other end is on another host.
    """

    def __init__(self, connection: Connection, *, memory: str) -> None:
        self._connection = connection
        self._shared = SharedFiles(memory) if memory else None
        self._reader = SharedReader(memory) if memory else None
        self._sending = threading.Lock()
        self._closing = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message.  Raises: OSError when the other end is gone, Internal."""
        self.write(self.packed(message))

    def packed(self, message: dict[str, Any]) -> bytes:
        """A message for `write`.  Raises: Internal for what cannot be sent."""
        body, blobs = pack(message)
        sizes = [blob.nbytes for blob in blobs]
        large = sum(sizes) >= _SHARED_FROM_BYTES
        written = self._shared.write(blobs) if self._shared is not None and large else None
        if written is None:
            place, tail = _INLINE, [blob.tobytes() for blob in blobs]
        else:
            place, tail = _KEPT if written[1] else _ONCE, [str(written[0]).encode()]
        head = _HEAD.pack(len(body), len(blobs), place) + struct.pack(f"<{len(sizes)}Q", *sizes)
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
        if self._shared is not None:
            self._shared.close()

    def _read(self, data: memoryview) -> Any:
        length, count, place = _HEAD.unpack_from(data)
        sizes = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
        start = _HEAD.size + 8 * count
        body, tail = data[start : start + length], data[start + length :]
        if place == _INLINE:
            return unpack(bytes(body), _cut(tail, sizes))
        if self._reader is None:
            text = "it names memory, and comes from another host"
            raise ValueError(text)
        path = bytes(tail).decode()
        return unpack(bytes(body), self._reader.read(path, sizes, kept=place == _KEPT))


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


def _cut(tail: memoryview, sizes: Sequence[int]) -> list[np.ndarray[Any, Any]]:
    """The blobs that lie in the message itself, copied: they may be written to."""
    found, place = [], 0
    for size in sizes:
        found.append(np.frombuffer(bytearray(tail[place : place + size]), np.uint8))
        place += size
    return found
