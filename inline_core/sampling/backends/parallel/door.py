"""Where processes of a group come in: each has to know the key, and nobody waits for the others."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, Final

import structlog

_log = structlog.get_logger(__name__)
_KEY_WAIT_S: Final = 10
_LOOK_S: Final = 0.5
_AT_ONCE: Final = 256  # connections that have not shown the key yet
_SILENT_HOST_MS: Final = 15_000

Address = str | tuple[str, int]


class Door:
    """Listens at an address; `serve` is called for each that knows the key, on its own thread."""

    def __init__(self, address: Address, key: bytes, serve: Callable[[Connection], None]) -> None:
        """Listen.  Raises: OSError."""
        self._key = key
        self._serve = serve
        self._closed = threading.Event()
        self._unknown = threading.Semaphore(_AT_ONCE)
        family = _family(address)
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family != socket.AF_UNIX:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(address)
            self._socket.listen(_AT_ONCE)
            # Closing a socket does not wake those who wait for it everywhere.
            self._socket.settimeout(_LOOK_S)
        except OSError:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._accept, name="group-accept", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let nobody in any more; the address is free when it returns."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(2 * _LOOK_S)
        self._socket.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                caller, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if not self._closed.wait(_LOOK_S):
                    _log.warning("group_accept", reason=str(error))
                continue
            if not self._unknown.acquire(blocking=False):
                caller.close()
                continue
            threading.Thread(
                target=self._admit, args=(caller,), name="group-rank", daemon=True
            ).start()

    def _admit(self, caller: socket.socket) -> None:
        limit_waits(caller, _KEY_WAIT_S)
        notice_silence(caller)
        connection = Connection(caller.detach())
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            limit_waits(connection, 0)
        except Exception as error:  # noqa: BLE001 - a stranger may say whatever he likes
            if not self._closed.is_set():
                _log.warning("group_stranger", reason=str(error) or type(error).__name__)
            connection.close()
            return
        finally:
            self._unknown.release()
        self._serve(connection)


def knock(address: Address, key: bytes, wait_s: float = _KEY_WAIT_S) -> Connection:
    """Connect to a door.

    Raises: AuthenticationError if the key is another one, OSError or EOFError if nobody is there.
    """
    caller = socket.socket(_family(address), socket.SOCK_STREAM)
    try:
        caller.settimeout(wait_s)
        caller.connect(address)
        caller.settimeout(None)
        limit_waits(caller, wait_s)
        notice_silence(caller)
    except OSError:
        caller.close()
        raise
    connection = Connection(caller.detach())
    try:
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
        limit_waits(connection, 0)
    except AssertionError as error:
        connection.close()
        message = "it is another program that listens there"
        raise OSError(message) from error
    except BaseException:
        connection.close()
        raise
    return connection


def limit_waits(end: Any, seconds: float) -> None:
    """How long sending and receiving may wait at most; 0 for ever."""
    with socket.socket(fileno=_number(end)) as whole:
        try:
            span = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
            whole.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)
            whole.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, span)
        finally:
            whole.detach()


def notice_silence(caller: socket.socket) -> None:
    """Have a connection end when the other host is gone without a word."""
    if caller.family == socket.AF_UNIX:
        return
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 5),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 2),
        ("TCP_USER_TIMEOUT", _SILENT_HOST_MS),
        ("TCP_NODELAY", 1),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            caller.setsockopt(socket.IPPROTO_TCP, option, value)


def _number(end: Any) -> int:
    number: int = end.fileno()
    return number


def _family(address: Address) -> socket.AddressFamily:
    if isinstance(address, str):
        return socket.AF_UNIX
    return socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
