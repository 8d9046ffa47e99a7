"""What the server and its process for Ray tell each other: plain values, arrays beside them."""

from __future__ import annotations

import struct
import threading
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np

from inline_core.errors import Internal
from inline_core.sampling.backends.parallel.codec import pack, unpack

_COUNT: Final = struct.Struct("<I")


class Wire:
    """Sends and receives messages; sending is safe from any thread, receiving from one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message.  Raises: OSError when the other end is gone, Internal."""
        body, blobs = pack(message)
        with self._lock:
            self._connection.send_bytes(_COUNT.pack(len(blobs)) + body)
            for blob in blobs:
                self._connection.send_bytes(blob.data)

    def receive(self) -> dict[str, Any]:
        """The next message; its arrays may be written to.

        Raises: EOFError or OSError when the other end is gone, Internal for what is no message.
        """
        data = self._connection.recv_bytes()
        (count,) = _COUNT.unpack_from(data)
        blobs = [_array(self._connection.recv_bytes()) for _ in range(count)]
        message = unpack(data[_COUNT.size :], blobs)
        if not isinstance(message, dict):
            text = "a message of another process is not a dictionary"
            raise Internal(text)
        return message

    def close(self) -> None:
        """Close the connection; the other end sees the end of it."""
        self._connection.close()


def _array(data: bytes) -> np.ndarray[Any, Any]:
    return np.frombuffer(bytearray(data), np.uint8) if data else np.zeros(0, np.uint8)
