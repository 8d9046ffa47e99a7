"""A torchrun group of rank processes as the server sees it: started, listened to, ended.

Whatever happens to its processes, `end` leaves none of them on this host.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import IO, Any, Final

import psutil
import structlog

from inline_core.sampling.backends.parallel.channel import Channel

_log = structlog.get_logger(__name__)
_KEY_BYTES: Final = 32
_LOG_TAIL_BYTES: Final = 4000
_END_WAIT_S: Final = 10.0
_RANK_MODULE: Final = "inline_core.engine.ranks"


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


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What a group is made of: `world` ranks, on `gpus` (as CUDA_VISIBLE_DEVICES names them)."""

    world: int
    gpus: tuple[str, ...] = ()
    meeting: Meeting | None = None

    @property
    def local(self) -> int:
        """Ranks on this host."""
        return self.world // (self.meeting.hosts if self.meeting else 1)


@dataclass(slots=True)
class RankState:
    """What is known of one rank."""

    rank: int
    pid: int
    host: str
    remote: bool
    channel: Channel
    ready: bool = False
    passes: int = 0
    beat_s: float = field(default_factory=time.monotonic)

    @property
    def in_words(self) -> str:
        """How messages name it."""
        return f"rank {self.rank} (process {self.pid}{f' on {self.host}' if self.remote else ''})"


class Group:
    """One start of a group.  `inbox` has (rank, message); all else is for one thread."""

    def __init__(self, plan: GroupPlan, settings: Mapping[str, Any]) -> None:
        """`settings` are those of the server, which every rank gets."""
        self.plan = plan
        self.ranks: dict[int, RankState] = {}
        self.inbox: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        self.started_s = time.monotonic()
        self._settings = dict(settings)
        self._agent: subprocess.Popen[bytes] | None = None
        self._agent_pid = 0
        self._listeners: list[Listener] = []
        self._folder = Path(tempfile.mkdtemp(prefix="inline-core-group-"))
        self._log: IO[bytes] | None = None
        self._ended = False

    # ---- start ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start torchrun; the ranks say hello when they are there.  Raises: OSError."""
        key = secrets.token_bytes(_KEY_BYTES)
        address = str(self._folder / "ranks.sock")
        self._listen(Listener(address, "AF_UNIX", backlog=self.plan.world, authkey=key))
        meeting = self.plan.meeting
        if meeting is not None:
            place = (meeting.host, meeting.port + 1)
            shared = meeting.key.encode()
            self._listen(Listener(place, "AF_INET", backlog=self.plan.world, authkey=shared))
        environment = {
            **os.environ,
            "INLINE_GROUP": json.dumps({"address": address, "key": key.hex(), "remote": False}),
        }
        if self.plan.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(self.plan.gpus)
        self._log = (self._folder / "ranks.log").open("wb")
        self._agent = subprocess.Popen(  # noqa: S603 - our own command
            torchrun_command(self.plan.local, meeting, node_rank=0),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # A Ctrl-C is for the server, which then ends the group.
            start_new_session=True,
        )
        self._agent_pid = self._agent.pid
        _log.info("group_started", ranks=self.plan.world, agent=self._agent_pid)

    def _listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

        def accept() -> None:
            while not self._ended:
                try:
                    connection = listener.accept()
                except Exception as error:  # noqa: BLE001 - a stranger with a wrong key, or the end
                    if self._ended or isinstance(error, OSError):
                        return
                    _log.warning("group_stranger", reason=str(error))
                    continue
                threading.Thread(
                    target=self._serve, args=(connection,), name="group-rank", daemon=True
                ).start()

        threading.Thread(target=accept, name="group-accept", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        """Pass on everything that one rank sends."""
        rank = -1
        try:
            channel = Channel(connection, same_host=True)
            hello = channel.receive()
            if hello["remote"]:
                channel = Channel(connection, same_host=False)
            rank = int(hello["rank"])
            self.inbox.put((rank, {**hello, "channel": channel}))
            while True:
                self.inbox.put((rank, channel.receive()))
        except (EOFError, OSError):
            self.inbox.put((rank, {"kind": "gone"}))
        except Exception as error:  # noqa: BLE001 - what cannot be read is the fault of the rank
            self.inbox.put((rank, {"kind": "gone", "why": str(error)}))

    def welcome(self, rank: int, hello: Mapping[str, Any]) -> None:
        """Note a rank that said hello, and give it the settings.  Raises: OSError."""
        state = RankState(rank, hello["pid"], hello["host"], hello["remote"], hello["channel"])
        self.ranks[rank] = state
        state.channel.send({"kind": "settings", "settings": self._settings})

    # ---- state ---------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether all ranks have joined."""
        states = self.ranks.values()
        return len(states) == self.plan.world and all(state.ready for state in states)

    @property
    def leader(self) -> RankState:
        """The rank that takes jobs."""
        return self.ranks[self.plan.world - 1]

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of the group on this host that are known, the agent first."""
        mine = [state.pid for state in self.ranks.values() if not state.remote]
        return (self._agent_pid, *mine)

    def agent_ended(self) -> int | None:
        """The exit code of torchrun, None while it runs."""
        return None if self._agent is None else self._agent.poll()

    def slowest(self) -> RankState | None:
        """The rank that stands still: without a sign of life for longest, or the fewest passes."""
        states = list(self.ranks.values())
        if not states:
            return None
        now = time.monotonic()
        silent = [state for state in states if now - state.beat_s > 2.0]  # noqa: PLR2004 - 8 beats
        if silent:
            return min(silent, key=lambda state: state.beat_s)
        return min(states, key=lambda state: state.passes)

    def log_tail(self) -> str:
        """The end of what the processes have printed."""
        with contextlib.suppress(OSError):
            data = (self._folder / "ranks.log").read_bytes()[-_LOG_TAIL_BYTES:]
            return data.decode(errors="replace").strip()
        return ""

    # ---- end -----------------------------------------------------------------------------------

    def dissolve(self) -> bool:
        """Ask an idle group to end, and wait for it; True if it did so by itself."""
        try:
            self.leader.channel.send({"kind": "stop"})
            if self._agent is not None:
                self._agent.wait(_END_WAIT_S)
            ended = True
        except (OSError, KeyError, subprocess.TimeoutExpired):
            ended = False
        self.end()
        return ended

    def end(self) -> None:
        """End every process of the group on this host, at once; safe to call twice."""
        if self._ended:
            return
        self._ended = True
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.close()
        for state in self.ranks.values():
            state.channel.close()
        kill_all(self.pids)
        if self._agent is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._agent.wait(_END_WAIT_S)
        if self._log is not None:
            self._log.close()
        for name in ("ranks.log", "ranks.sock"):
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def torchrun_command(
    local: int, meeting: Meeting | None, *, node_rank: int, module: str = _RANK_MODULE
) -> list[str]:
    """The command that starts the ranks of one host."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
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


def kill_all(pids: Sequence[int]) -> None:
    """End processes and what they have started, those that are stopped too."""
    family: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            family[pid] = process
            family |= {child.pid: child for child in process.children(recursive=True)}
    for process in family.values():
        with contextlib.suppress(psutil.Error, OSError):
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs([p for pid, p in family.items() if pid != pids[0]], timeout=_END_WAIT_S)
