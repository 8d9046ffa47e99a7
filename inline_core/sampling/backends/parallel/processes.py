"""Processes of a group: started by torchrun, tied to their parent, ended with all they started.

Nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import IO, Any, Final

import psutil

# What a process of a group is told by the one that starts it: a `Told`, and the latter's id.
GROUP_VARIABLE: Final = "INLINE_GROUP"
PARENT_VARIABLE: Final = "INLINE_GROUP_PARENT"
EXIT_ORPHAN: Final = 3
_AGENT_MODULE: Final = "inline_core.engine.ranks.agent"
_RANK_MODULE: Final = "inline_core.engine.ranks"
_END_WAIT_S: Final = 10.0
_LOOK_S: Final = 0.02
_PR_SET_PDEATHSIG: Final = 1
# Which network card ranks of several hosts meet on; by default gloo asks for the host's name.
_CARD_VARIABLES: Final = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the ranks of several hosts meet: torchrun's rendezvous, and the server's own port.

    `host` and `port` are those of the rendezvous, the server listens one port above; `key` is the
    secret that all hosts know.
    """

    host: str
    port: int
    key: str
    hosts: int

    @property
    def door(self) -> tuple[str, int]:
        """Where the server listens."""
        return (self.host, self.port + 1)

    @property
    def secret(self) -> bytes:
        """The key as both ends of a connection use it."""
        return self.key.encode()


@dataclass(frozen=True, slots=True)
class Told:
    """What a rank has to know to reach the server; `key` in hexadecimal digits.

    `address` is a path, or host and port where `remote`.  `group` tells the groups of one server
    apart, `memory` is the prefix of shared memory.
    """

    address: str | tuple[str, int]
    key: str
    group: str
    remote: bool
    memory: str

    def text(self) -> str:
        """For the environment of a process."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Told:
        """From the environment of this process.  Raises: KeyError."""
        told: dict[str, Any] = json.loads(environment[GROUP_VARIABLE])
        address = told["address"]
        told["address"] = (address[0], address[1]) if told["remote"] else address
        return cls(**told)


def start_agent(
    command: list[str], told: Told, environment: Mapping[str, str], output: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    """Start torchrun, tied to this process; `output` None is that of this process.

    To be called on a thread that lives as long as the group.  Raises: OSError.
    """
    return subprocess.Popen(  # noqa: S603 - our own command
        command,
        env={**environment, GROUP_VARIABLE: told.text(), PARENT_VARIABLE: str(os.getpid())},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        # A Ctrl-C is for the process that starts it, which then ends the group.
        start_new_session=True,
    )


def torchrun_command(
    local: int, meeting: Meeting | None, *, node_rank: int, module: str = _RANK_MODULE
) -> list[str]:
    """The command that starts the ranks of one host."""
    command = [
        sys.executable,
        "-m",
        _AGENT_MODULE,
        f"--nproc_per_node={local}",
        # One that died takes its group with it: the server starts a new one.
        "--max_restarts=0",
        "--monitor_interval=0.1",
    ]
    if meeting is None:
        # A free port each time, so two servers on one host do not meet.
        place = ["--nnodes=1", "--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:0"]
    else:
        place = [
            f"--nnodes={meeting.hosts}",
            f"--node_rank={node_rank}",
            "--rdzv_backend=static",
            f"--master_addr={meeting.host}",
            f"--master_port={meeting.port}",
        ]
    return [*command, *place, "-m", module]


def tie_to_parent() -> None:
    """End this process when the one that started it ends, however that happens.

    First of all in a process; where the parent has ended already, so does this one.
    """
    expected = int(os.environ.get(PARENT_VARIABLE, "0")) or os.getppid()
    if sys.platform == "linux":
        # Elsewhere ranks notice it by their connection, and torchrun by its ranks.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != expected:
        os._exit(EXIT_ORPHAN)
    os.environ[PARENT_VARIABLE] = str(os.getpid())


def kill_all(agent: subprocess.Popen[bytes] | None, ranks: Iterable[psutil.Process]) -> list[int]:
    """End torchrun, ranks and what they have started, those that are stopped too; waits for them.

    Gives the ids of those that would not end.
    """
    family = list(ranks)
    if agent is not None:
        with contextlib.suppress(psutil.Error):
            family.append(psutil.Process(agent.pid))
    found: dict[int, psutil.Process] = {}
    sessions = set()
    for process in family:
        if process.is_running() or not psutil.pid_exists(process.pid):
            # Else another process has its number, and it has left nothing: numbers of sessions
            # are not used again.
            sessions.add(process.pid)
        with contextlib.suppress(psutil.Error):
            found[process.pid] = process
            found |= {child.pid: child for child in process.children(recursive=True)}
    # What a process has started that is gone already: each of ours leads a session.
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            if os.getsid(process.pid) in sessions:
                found.setdefault(process.pid, process)
    for process in found.values():
        with contextlib.suppress(psutil.Error, OSError):
            process.kill()
    if agent is not None:
        found.pop(agent.pid, None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            agent.wait(_END_WAIT_S)
    left, deadline = list(found.values()), time.monotonic() + _END_WAIT_S
    while left and time.monotonic() < deadline:
        left = [process for process in left if not _ended(process)]
        time.sleep(_LOOK_S if left else 0)
    return [process.pid for process in left]


def _ended(process: psutil.Process) -> bool:
    """Also what nobody has asked about yet: the first process of a container often does not."""
    try:
        return not process.is_running() or bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


def card_of(address: str) -> dict[str, str]:
    """Variables that make ranks meet on the network card with an address; none that are set."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in addresses):
            return {key: name for key in _CARD_VARIABLES if key not in os.environ}
    return {}


def trouble_with_port(host: str, port: int) -> str:
    """Why this host cannot listen there, in words; empty if it can."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return ""
