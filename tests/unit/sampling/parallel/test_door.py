"""Who comes in, and who keeps nobody waiting outside."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from inline_core.sampling.backends.parallel.door import Door, knock

KEY = b"a key that is long enough"


@pytest.fixture
def inside() -> Iterator[queue.SimpleQueue[Connection]]:
    came: queue.SimpleQueue[Connection] = queue.SimpleQueue()
    yield came
    with contextlib.suppress(queue.Empty):
        while True:
            came.get_nowait().close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def test_who_knows_the_key_is_served(tmp_path: Path, inside: queue.SimpleQueue[Connection]) -> None:
    for address in (str(tmp_path / "s"), ("127.0.0.1", free_port())):
        door = Door(address, KEY, inside.put)
        connection = knock(address, KEY)
        connection.send_bytes(b"hello")
        assert inside.get(timeout=5).recv_bytes() == b"hello"
        connection.close()
        door.close()


def test_a_wrong_key_and_silence_keep_nobody_out(
    tmp_path: Path, inside: queue.SimpleQueue[Connection]
) -> None:
    address = str(tmp_path / "s")
    door = Door(address, KEY, inside.put)
    silent = socket.socket(socket.AF_UNIX)
    silent.connect(address)
    rude = socket.socket(socket.AF_UNIX)
    rude.connect(address)
    rude.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
    with pytest.raises(AuthenticationError):
        knock(address, b"another key")
    knock(address, KEY).close()
    inside.get(timeout=5)
    silent.close()
    rude.close()
    door.close()


def test_a_closed_door_leaves_its_address_and_no_thread(
    inside: queue.SimpleQueue[Connection],
) -> None:
    address = ("127.0.0.1", free_port())
    before = threading.active_count()
    for _ in range(3):
        door = Door(address, KEY, inside.put)
        with pytest.raises(OSError, match="in use"):
            Door(address, KEY, inside.put)
        door.close()
    with pytest.raises(OSError, match="refused"):
        knock(address, KEY, 1)
    assert threading.active_count() == before


def test_another_program_is_told_from_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            caller, _ = other.accept()
            with caller:
                caller.sendall(b"\0\0\0\4HTTP")
                caller.recv(10)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(OSError, match="another program"):
            knock(("127.0.0.1", other.getsockname()[1]), KEY, 5)
        thread.join(5)
