"""Commands of a group, and the end of its processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from inline_core.sampling.backends.parallel.processes import (
    GROUP_VARIABLE,
    Meeting,
    Told,
    card_of,
    kill_all,
    torchrun_command,
    trouble_with_port,
)

MEETING = Meeting("10.0.0.1", 29500, "schlüssel", 3)
SLEEP = "import time; time.sleep(1000)"


def test_one_host_takes_a_free_port_and_several_meet_at_theirs() -> None:
    alone = torchrun_command(2, None, node_rank=0)
    assert "--rdzv_endpoint=127.0.0.1:0" in alone
    together = torchrun_command(4, MEETING, node_rank=2)
    for part in ("--nnodes=3", "--node_rank=2", "--master_addr=10.0.0.1", "--master_port=29500"):
        assert part in together
    for command in (alone, together):
        assert "--max_restarts=0" in command
        assert command[-2:] == ["-m", "inline_core.engine.ranks"]
    assert MEETING.door == ("10.0.0.1", 29501)


@pytest.mark.parametrize("remote", [False, True])
def test_both_ends_use_the_same_key(remote: bool) -> None:
    address = MEETING.door if remote else "/a/b"
    told = Told(address, MEETING.secret.hex(), "group", remote=remote, memory="")
    found = Told.of({GROUP_VARIABLE: told.text()})
    assert found == told
    assert bytes.fromhex(found.key) == MEETING.secret


def test_what_processes_have_started_ends_with_them(tmp_path: Path) -> None:
    """Also what a rank has started that is gone already, and processes that are stopped."""
    note = tmp_path / "pid"
    code = (
        f"import os, subprocess, sys; p = subprocess.Popen([sys.executable, '-S', '-c', {SLEEP!r}])"
        f"; open({str(note) + '.part'!r}, 'w').write(str(p.pid))"
        f"; os.rename({str(note) + '.part'!r}, {str(note)!r}); "
    )
    gone = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    rank = psutil.Process(gone.pid)
    stopped = subprocess.Popen([sys.executable, "-S", "-c", SLEEP], start_new_session=True)
    stopped.send_signal(19)
    agent = subprocess.Popen([sys.executable, "-S", "-c", SLEEP], start_new_session=True)
    deadline, pause = time.monotonic() + 10, threading.Event()
    while not note.exists():
        assert time.monotonic() < deadline
        pause.wait(0.01)
    gone.wait(10)
    orphan = psutil.Process(int(note.read_text()))
    start = time.monotonic()
    # The stopped one stays a zombie as nobody waits for it, and is ended all the same.
    assert kill_all(agent, [rank, psutil.Process(stopped.pid)]) == []
    assert time.monotonic() - start < 5
    assert agent.returncode == -9
    stopped.wait(5)
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE


def test_a_process_that_took_a_number_over_is_let_live() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", SLEEP]) as other:
        old: Any = psutil.Process(other.pid)
        old._create_time = 1.0
        old._ident = (other.pid, 1.0)
        kill_all(None, [old])
        assert other.poll() is None
        other.kill()


def test_ports_and_network_cards() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "in use" in trouble_with_port("127.0.0.1", taken.getsockname()[1])
    assert trouble_with_port("127.0.0.1", 0) == ""
    assert trouble_with_port("203.0.113.7", 0)
    assert card_of("127.0.0.1") == {} or set(card_of("127.0.0.1")) <= {
        "GLOO_SOCKET_IFNAME",
        "NCCL_SOCKET_IFNAME",
    }
    assert card_of("203.0.113.7") == {}


def test_a_tied_process_ends_with_its_parent(tmp_path: Path) -> None:
    """Whatever it is doing, and also when the parent is gone before it begins."""
    note = tmp_path / "pid"
    child = (
        "from inline_core.sampling.backends.parallel.processes import tie_to_parent; import os, time;"
        f"tie_to_parent(); open({str(note) + '.part'!r}, 'w').write(str(os.getpid()));"
        f"os.rename({str(note) + '.part'!r}, {str(note)!r}); time.sleep(1000)"
    )
    code = (
        "import os, subprocess, sys, time; os.environ['INLINE_GROUP_PARENT'] = str(os.getpid());"
        f"subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(1000)"
    )
    parent = subprocess.Popen([sys.executable, "-S", "-c", code])
    deadline, pause = time.monotonic() + 20, threading.Event()
    while not note.exists():
        assert time.monotonic() < deadline
        pause.wait(0.01)
    tied = psutil.Process(int(note.read_text()))
    parent.kill()
    parent.wait(5)
    psutil.wait_procs([tied], timeout=5)
    assert not tied.is_running() or tied.status() == psutil.STATUS_ZOMBIE
    late = {**os.environ, "INLINE_GROUP_PARENT": str(parent.pid)}
    assert subprocess.run([sys.executable, "-c", child], env=late, check=False).returncode == 3
