"""Messages between processes, and what is left of them."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from inline_core.errors import Internal
from inline_core.sampling.backends.parallel.channel import (
    Channel,
    Outbox,
    remove_shared,
    shared_folder,
    shared_prefix,
    sweep_left,
)

Ends = tuple[Channel, Channel]
LARGE = torch.arange(200_000, dtype=torch.float32).reshape(2, -1)


def ends(memory: str) -> Ends:
    one, other = socket.socketpair()
    return (
        Channel(Connection(one.detach()), memory=memory),
        Channel(Connection(other.detach()), memory=memory),
    )


@pytest.fixture
def memory() -> Iterator[str]:
    if shared_folder() is None:
        pytest.skip("this system has no shared memory in files")
    prefix = shared_prefix()
    yield prefix
    assert not files_of(prefix)


def files_of(prefix: str) -> list[Path]:
    return list(Path(prefix).parent.glob(f"{Path(prefix).name}*"))


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
    assert not files_of(memory)


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
    assert not files_of(memory)


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


def test_only_what_dead_processes_left_is_swept(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as gone:
        gone.wait()
    (tmp_path / f"inline-core-{gone.pid}-a").write_bytes(b"x")
    folder = tmp_path / f"inline-core-{gone.pid}-b"
    folder.mkdir()
    (folder / "ranks.log").write_bytes(b"x")
    kept = [f"inline-core-{os.getpid()}-a", "inline-core-x-y", "other"]
    for name in kept:
        (tmp_path / name).write_bytes(b"x")
    assert sweep_left(tmp_path, "inline-core-") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_the_memory_of_one_group_is_removed(memory: str) -> None:
    other = shared_prefix()
    for prefix in (memory, other):
        Path(f"{prefix}1").write_bytes(b"x")
    remove_shared(memory)
    remove_shared("")
    assert not files_of(memory)
    assert len(files_of(other)) == 1
    remove_shared(other)
