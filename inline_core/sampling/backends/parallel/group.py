"""A torchrun group of rank processes as the server sees it: started, listened to, ended.

Whatever happens to its processes, `end` leaves none of them on this host, and neither does the
end of this process.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, Final

import psutil
import structlog

from inline_core.errors import InvalidRequest, PortTaken
from inline_core.sampling.backends.parallel.blame import Sign, cause_of
from inline_core.sampling.backends.parallel.channel import Channel, Outbox
from inline_core.sampling.backends.parallel.door import Door
from inline_core.sampling.backends.parallel.memory import (
    remove_shared,
    shared_prefix,
    sweep_left,
    sweep_shared,
)
from inline_core.sampling.backends.parallel.processes import (
    Meeting,
    Told,
    card_of,
    kill_all,
    start_agent,
    torchrun_command,
    trouble_with_port,
)

_log = structlog.get_logger(__name__)
_FOLDER_PREFIX: Final = "inline-core-group-"
_LONGEST_SOCKET_PATH: Final = 100
_KEY_BYTES: Final = 32
_LOG_TAIL_BYTES: Final = 16_000
_LONGEST_LOG_BYTES: Final = 4_000_000
_END_WAIT_S: Final = 10.0
_SILENT_S: Final = 2.0  # eight beats
_STACKS_S: Final = 0.2
_LONGEST_STACKS: Final = 4000
# How long to wait for more signs of an end: one rank takes the others with it.
_GRACE_S: Final = 0.3
_GRACE_AT_START_S: Final = 2.0


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


@dataclass(slots=True, eq=False)
class RankState:
    """What is known of one rank; `process` is None where it is on another host, or gone."""

    rank: int
    pid: int
    host: str
    remote: bool
    channel: Channel
    outbox: Outbox
    process: psutil.Process | None
    ready: bool = False
    passes: int = 0
    beat_s: float = field(default_factory=time.monotonic)

    @property
    def in_words(self) -> str:
        """How messages name it."""
        return f"rank {self.rank} (process {self.pid}{f' on {self.host}' if self.remote else ''})"


@dataclass(slots=True, eq=False)
class HostState:
    """Another host that has joined: `inline-core join` there."""

    host: str
    channel: Channel
    outbox: Outbox


Peer = RankState | HostState


class Group:
    """One start of a group.  `inbox` has (who, message); all else is for one thread."""

    def __init__(
        self, plan: GroupPlan, settings: Mapping[str, Any], versions: Mapping[str, str]
    ) -> None:
        """`settings` are those of the server, which every rank gets; `versions` all must have.

        Raises: OSError.
        """
        self.plan = plan
        self.ranks: dict[int, RankState] = {}
        self.hosts: list[HostState] = []
        self.inbox: queue.SimpleQueue[tuple[Peer | None, dict[str, Any]]] = queue.SimpleQueue()
        self.started_s = time.monotonic()
        self.signs: list[Sign] = []
        self._signs_since_s = 0.0
        self._settings = dict(settings)
        self._versions = dict(versions)
        self._name = secrets.token_hex(8)
        self._memory = shared_prefix()
        self._agent: subprocess.Popen[bytes] | None = None
        self._doors: list[Door] = []
        self._folder = Path(
            tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-", dir=_temporary_folder())
        )
        self._told = Told(
            str(self._folder / "ranks.sock"),
            secrets.token_bytes(_KEY_BYTES).hex(),
            self._name,
            remote=False,
            memory=self._memory,
        )
        self._log: IO[bytes] | None = None
        self._ended = False

    # ---- start ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen, and start torchrun, as soon as all other hosts have come (`welcome_host`).

        Raises: OSError, PortTaken or InvalidRequest for a place to meet that cannot be had.
        """
        assert isinstance(self._told.address, str)
        key = bytes.fromhex(self._told.key)
        self._doors.append(Door(self._told.address, key, self._serve))
        meeting = self.plan.meeting
        if meeting is None:
            self._launch()
            return
        for port in (meeting.port, meeting.port + 1):
            trouble = trouble_with_port(meeting.host, port)
            if trouble:
                message = (
                    f"port {port} of {meeting.host} cannot be listened on ({trouble}): "
                    f"INLINE_PARALLEL_ADDRESS ({meeting.host}:{meeting.port}) must be an address "
                    "of this host whose port and the next one are free"
                )
                raise (PortTaken if "in use" in trouble else InvalidRequest)(message)
        self._doors.append(Door(meeting.door, meeting.secret, self._serve))

    def _launch(self) -> None:
        environment = dict(os.environ)
        if self.plan.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(self.plan.gpus)
        meeting = self.plan.meeting
        if meeting is not None:
            environment |= card_of(socket.gethostbyname(meeting.host))
        # Appended to, so that it can be cut short while it is written.
        self._log = (self._folder / "ranks.log").open("ab")
        command = torchrun_command(self.plan.local, meeting, node_rank=0)
        self._agent = start_agent(command, self._told, environment, self._log)
        _log.info("group_started", ranks=self.plan.world, agent=self._agent.pid)

    def _serve(self, connection: Connection) -> None:
        """Pass on everything that one process says."""
        channel = Channel(connection, memory=self._memory)
        peer: Peer | None = None
        try:
            hello = channel.receive()
            if hello.get("remote", True):
                channel = Channel(connection, memory="")
            peer = self._peer(hello, channel)
            if self._ended or (isinstance(peer, RankState) and hello["group"] != self._name):
                # Of a group before this one, and late.
                return
            self.inbox.put((peer, hello))
            while True:
                self.inbox.put((peer, channel.receive()))
        except (EOFError, OSError):
            self.inbox.put((peer, {"kind": "gone"}))
        except Exception as error:  # noqa: BLE001 - what cannot be read is the fault of the rank
            self.inbox.put((peer, {"kind": "gone", "why": str(error)}))
        finally:
            if peer is not None:
                peer.outbox.close()
            channel.close()

    def _peer(self, hello: Mapping[str, Any], channel: Channel) -> Peer:
        peer: Peer
        outbox = Outbox(channel, lambda: self.inbox.put((peer, {"kind": "gone"})))
        if hello["kind"] == "host":
            peer = HostState(hello["host"], channel, outbox)
            return peer
        process = None
        if not hello["remote"]:
            # Known by its start, too, so that no other process is ever taken for it.
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(hello["pid"])
        rank, pid, host = int(hello["rank"]), int(hello["pid"]), str(hello["host"])
        peer = RankState(rank, pid, host, hello["remote"], channel, outbox, process)
        return peer

    def welcome(self, state: RankState, hello: Mapping[str, Any]) -> None:
        """Note a rank that said hello, and give it the settings; or refuse it."""
        if not 0 <= state.rank < self.plan.world or state.rank in self.ranks:
            state.channel.hang_up()
            return
        self.ranks[state.rank] = state
        trouble = self._trouble(hello)
        if trouble:
            words = f"rank {state.rank} on {state.host} {trouble}"
            self.note(Sign("refused", words, state.rank))
        else:
            state.outbox.post(kind="settings", settings=self._settings)

    def welcome_host(self, state: HostState, hello: Mapping[str, Any]) -> None:
        """Note a host that has joined; the last one starts the ranks of all.  Raises: OSError."""
        meeting = self.plan.meeting
        assert meeting is not None
        trouble = self._trouble(hello)
        if trouble:
            with contextlib.suppress(OSError):
                # At once, as what is posted may be lost in the end that follows.
                state.channel.send({"kind": "refused", "why": f"{state.host} {trouble}"})
            self.note(Sign("refused", f"host {state.host} {trouble}"))
            return
        if len(self.hosts) >= meeting.hosts - 1:
            why = f"all {meeting.hosts} hosts of INLINE_PARALLEL_HOSTS are there already"
            state.outbox.post(kind="full", why=why)
            return
        self.hosts.append(state)
        _log.info("group_host", host=state.host, hosts=len(self.hosts) + 1, of=meeting.hosts)
        if len(self.hosts) < meeting.hosts - 1:
            return
        for number, host in enumerate(self.hosts, start=1):
            host.outbox.post(
                kind="go",
                node_rank=number,
                local=self.plan.local,
                hosts=meeting.hosts,
                group=self._name,
            )
        self._launch()

    def _trouble(self, hello: Mapping[str, Any]) -> str:
        theirs = {
            name: version
            for name, version in hello["versions"].items()
            if version != self._versions.get(name)
        }
        if not theirs:
            return ""
        told = ", ".join(f"{name} {version}" for name, version in theirs.items())
        ours = ", ".join(f"{name} {self._versions.get(name)}" for name in theirs)
        return f"runs {told}, the server {ours}: install the same releases on all hosts"

    # ---- state ---------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether all ranks have joined."""
        states = self.ranks.values()
        return len(states) == self.plan.world and all(state.ready for state in states)

    @property
    def leader(self) -> RankState:
        """The rank that takes jobs.  Raises: KeyError while it has not said hello."""
        return self.ranks[self.plan.world - 1]

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of the group on this host that are known, the agent first."""
        mine = [state.pid for state in list(self.ranks.values()) if not state.remote]
        return (self._agent.pid, *mine) if self._agent is not None else tuple(mine)

    def note(self, sign: Sign) -> None:
        """Note something that means the end of the group; more signs may follow."""
        if not self.signs:
            self._signs_since_s = time.monotonic()
        self.signs.append(sign)

    def look(self) -> None:
        """Notice that torchrun has ended."""
        code = None if self._agent is None else self._agent.poll()
        if code is not None and all(sign.kind != "agent" for sign in self.signs):
            assert self._agent is not None
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            words = f"torchrun (process {self._agent.pid}) {how}"
            self.note(Sign("agent", words, signal=code < 0))

    def cause(self) -> Sign | None:
        """Why the group is at its end, as soon as that can be told; None while it lives."""
        if not self.signs:
            return None
        grace_s = _GRACE_S if self.ready else _GRACE_AT_START_S
        told = any(
            sign.kind == "refused" or (sign.kind == "failed" and not sign.echo) or sign.signal
            for sign in self.signs
        )
        if not told and time.monotonic() - self._signs_since_s < grace_s:
            return None
        silent = [rank for rank in range(self.plan.world) if rank not in self.ranks]
        if self._agent is None or (self.plan.meeting is not None and self.hosts):
            # Those of other hosts print there.
            silent = [rank for rank in silent if rank < self.plan.local]
        return cause_of(self.signs, silent, self.log_tail())

    def missing(self) -> str:
        """Who has not joined, in words."""
        meeting = self.plan.meeting
        if meeting is not None and self._agent is None:
            return (
                f"{meeting.hosts - 1 - len(self.hosts)} of {meeting.hosts} hosts did not join: run "
                f"`inline-core join {meeting.host}:{meeting.port}` there"
            )
        absent = [
            self.ranks[rank].in_words if rank in self.ranks else f"rank {rank}"
            for rank in range(self.plan.world)
            if rank not in self.ranks or not self.ranks[rank].ready
        ]
        return f"{', '.join(absent)} did not join"

    def silent(self, longer_than_s: float) -> RankState | None:
        """The rank without a sign of life for longest, if that is longer than so many seconds."""
        first = min(self.ranks.values(), key=lambda state: state.beat_s, default=None)
        if first is None or time.monotonic() - first.beat_s <= longer_than_s:
            return None
        return first

    def stalled(self) -> str:
        """Who stands still, in words; where its processes are goes to the log of the server."""
        self._log_stacks()
        silent = self.silent(_SILENT_S)
        if silent is not None:
            return f"{silent.in_words} stalled, without a sign of life"
        states = self.ranks.values()
        last = min(states, key=lambda state: state.passes)
        if all(state.passes == last.passes for state in states):
            return f"all ranks stalled in the same pass ({last.passes + 1})"
        return f"{last.in_words} stalled in pass {last.passes + 1}, which others have ended"

    def _log_stacks(self) -> None:
        for state in self.ranks.values():
            with contextlib.suppress(psutil.Error, OSError):
                if state.process is not None:
                    state.process.send_signal(signal.SIGUSR1)
        time.sleep(_STACKS_S)
        _log.warning("group_stalled", where=self.log_tail()[-_LONGEST_STACKS:])

    def log_tail(self) -> str:
        """The end of what the processes have printed."""
        with contextlib.suppress(OSError):
            data = (self._folder / "ranks.log").read_bytes()[-_LOG_TAIL_BYTES:]
            return data.decode(errors="replace").strip()
        return ""

    def trim_log(self) -> None:
        """Keep what the processes print from filling the disk, however long they live."""
        if self._log is not None:
            with contextlib.suppress(OSError):
                if os.fstat(self._log.fileno()).st_size > _LONGEST_LOG_BYTES:
                    os.ftruncate(self._log.fileno(), 0)

    # ---- end -----------------------------------------------------------------------------------

    def dissolve(self, meanwhile: Callable[[], None]) -> bool:
        """Ask an idle group to end, and wait for it; True if it did so by itself."""
        deadline = time.monotonic() + _END_WAIT_S
        with contextlib.suppress(KeyError):
            self.leader.outbox.post(kind="stop")
        while self._agent is not None and self._agent.poll() is None:
            if time.monotonic() > deadline or not self.ready:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._agent.wait(_STACKS_S)
            meanwhile()
        ended = self._agent is not None and self._agent.poll() == 0
        self.end()
        return ended

    def end(self) -> None:
        """End every process of the group on this host, at once; safe to call twice."""
        if self._ended:
            return
        self._ended = True
        peers: list[Peer] = [*self.ranks.values(), *self.hosts]
        for peer in peers:
            peer.channel.hang_up()
        ranks = [state.process for state in self.ranks.values() if state.process is not None]
        left = kill_all(self._agent, ranks)
        if left:
            _log.error("group_left", processes=left)
        for door in self._doors:
            door.close()
        if self._log is not None:
            self._log.close()
        for name in ("ranks.log", "ranks.sock"):
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()
        with contextlib.suppress(OSError):
            self._folder.rmdir()
        remove_shared(self._memory)


def sweep() -> None:
    """Remove what servers that were killed have left: memory, sockets and logs of their groups."""
    removed = sweep_shared() + sweep_left(_temporary_folder(), _FOLDER_PREFIX)
    if removed:
        _log.info("group_swept", removed=removed)


def _temporary_folder() -> Path:
    """Where sockets may be: their paths cannot be long."""
    folder = Path(tempfile.gettempdir())
    name = len(f"/{_FOLDER_PREFIX}{os.getpid()}-12345678/ranks.sock")
    return folder if len(str(folder)) + name <= _LONGEST_SOCKET_PATH else Path("/tmp")  # noqa: S108
