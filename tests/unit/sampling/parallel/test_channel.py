"""Messages between processes, and what is left of them."""

from __future__ import annotations

import resource
import socket
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from inline_core.errors import Internal
from inline_core.sampling.backends.parallel.channel import Channel, Outbox
from tests.unit.sampling.parallel.conftest import shared_files

Ends = tuple[Channel, Channel]
LARGE = torch.arange(200_000, dtype=torch.float32).reshape(2, -1)


def ends(memory: str) -> Ends:
    one, other = socket.socketpair()
    return (
        Channel(Connection(one.detach()), memory=memory),
        Channel(Connection(other.detach()), memory=memory),
    )


def send_and_receive(pair: Ends) -> torch.Tensor:
    sent = threading.Thread(target=pair[0].send, args=({"kind": "x", "tensor": LARGE},))
    sent.start()
    found = pair[1].receive()["tensor"]
    sent.join(10)
    for end in pair:
        end.close()
    assert isinstance(found, torch.Tensor)
    return found


def test_large_tensors_go_through_memory_and_may_be_written_to(memory: str) -> None:
    found = send_and_receive(ends(memory))
    assert torch.equal(found, LARGE)
    found += 1
    assert not shared_files(memory)


def test_another_host_gets_tensors_in_the_message() -> None:
    assert torch.equal(send_and_receive(ends("")), LARGE)


def test_memory_without_room_is_no_fault(memory: str) -> None:
    """Containers often have 64 MB; writing beyond that would be the end of the process."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        data = ends(memory)[0].packed({"tensor": LARGE})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(data) > LARGE.nbytes
    assert not shared_files(memory)


def test_files_of_memory_are_used_again(memory: str) -> None:
    one, other = ends(memory)
    for number in range(10):
        one.send({"tensor": LARGE + number})
        assert torch.equal(other.receive()["tensor"], LARGE + number)
        assert len(shared_files(memory)) == 1
    one.close()
    other.close()


def test_memory_of_others_is_not_opened(memory: str, tmp_path: Path) -> None:
    """Whoever knows the key cannot make the server read or remove its own files."""
    theirs, ours = ends(str(tmp_path / "x-"))[0], ends(memory)[1]
    kept = tmp_path / "x-kept"
    kept.write_bytes(b"mine")
    data = theirs.packed({"tensor": LARGE})
    one, other = socket.socketpair()
    Channel(Connection(one.detach()), memory="").write(data)
    ours = Channel(Connection(other.detach()), memory=memory)
    with pytest.raises(Internal, match="memory that is not of its group"):
        ours.receive()
    assert kept.exists()
    theirs.close()


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff" * 40])
def test_what_is_no_message_is_told(data: bytes) -> None:
    one, other = ends("")
    one.write(data)
    with pytest.raises(Internal, match="a message of another process"):
        other.receive()


def test_an_end_that_takes_nothing_keeps_nobody_waiting() -> None:
    one, _ = ends("")
    lost = threading.Event()
    outbox = Outbox(one, lost.set)
    for _ in range(50):
        outbox.post(kind="x", tensor=LARGE[:, :10_000])
    outbox.close()
    assert lost.wait(5)
    assert not outbox._thread.is_alive()


def test_hanging_up_wakes_who_receives() -> None:
    one, other = ends("")
    woken = threading.Event()

    def receive() -> None:
        with pytest.raises((EOFError, OSError)):
            one.receive()
        woken.set()

    thread = threading.Thread(target=receive)
    thread.start()
    one.hang_up()
    assert woken.wait(5)
    one.close()
    one.hang_up()
    other.close()
