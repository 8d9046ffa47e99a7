"""Jobs for a group of processes: handed over, followed, and begun again when a process is lost."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog

from inline_core.errors import (
    InlineError,
    ModelFileInvalid,
    OutOfMemory,
    RunCancelled,
    Unavailable,
    WorkerLost,
    error_of,
)
from inline_core.sampling.backends.parallel.blame import Sign
from inline_core.sampling.backends.parallel.entries import Entry, end, fail
from inline_core.sampling.backends.parallel.files import files_of
from inline_core.sampling.backends.parallel.group import (
    Group,
    GroupPlan,
    HostState,
    Peer,
    RankState,
    sweep,
)
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from inline_core.sampling.submitted import cancelled, check_job
from inline_core.settings import Settings

_log = structlog.get_logger(__name__)
_TICK_S: Final = 0.05
_TRIES: Final = 2
_SILENT_S: Final = 15.0  # a library that loads may hold up all threads of a rank
_SECRETS: Final = ("token", "parallel_key")
_PREVIEW_WAIT_S: Final = 5.0
_FAULTS_SHOWN: Final = 20


@dataclass(slots=True)
class _Counts:
    """What `stats` shows."""

    jobs: int = 0
    starts: int = 0
    start_s: float = 0.0
    ipc_ms: float = 0.0
    sampler: Mapping[str, Any] = field(default_factory=dict)
    pool: Mapping[str, Any] = field(default_factory=dict)
    faults: deque[str] = field(default_factory=lambda: deque(maxlen=_FAULTS_SHOWN))


PlanGroup = Callable[[SampleJob], GroupPlan]


class GroupSampler:
    """Implements `BatchedSampler` for jobs with a `split`.

    The group is started with the first job, kept for the next ones, and ended when it is idle for
    long.  `plan_group` says which devices the group of a job has.  A job whose group was lost is
    begun once more, which gives the same picture.  `submit` and `stats` are for any thread.
    """

    def __init__(
        self, settings: Settings, plan_group: PlanGroup, versions: Mapping[str, str]
    ) -> None:
        """`versions` are those that every rank must have."""
        self._settings = settings
        self._plan_group = plan_group
        self._versions = dict(versions)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._queue: deque[Entry] = deque()
        self._active: dict[int, Entry] = {}
        self._group: Group | None = None
        self._keys: set[str] = set()
        self._moved_s = time.monotonic()
        self._closed: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._gone = threading.Event()
        self._counts = _Counts()
        sweep()

    # ---- any thread ----------------------------------------------------------------------------

    def submit(self, job: SampleJob) -> Future[SampleResult]:
        """Queue a job; see `BatchedSampler.submit`."""
        check_job(job)
        entry = Entry(next(self._numbers), job, Future())
        with self._lock:
            if self._closed is not None:
                message = "the render is stopping"
                raise Unavailable(message)
            self._queue.append(entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="group-watch", daemon=True)
                self._thread.start()
        self._nudge()
        return entry.future

    def stats(self) -> dict[str, Any]:
        """Counts since the start; see `BatchedSampler.stats`."""
        group, counts = self._group, self._counts
        state = "none" if group is None else "ready" if group.ready else "starting"
        ranks = [] if group is None else list(group.ranks.values())
        return {
            "state": state,
            "active": len(self._active),
            "waiting": len(self._queue),
            "jobs": counts.jobs,
            "starts": counts.starts,
            "lastStartS": round(counts.start_s, 3),
            "lastIpcMs": round(counts.ipc_ms, 3),
            "faults": list(counts.faults),
            "splits": sorted(self._keys),
            "sampler": counts.sampler,
            "pool": counts.pool,
            "ranks": [
                {"rank": one.rank, "pid": one.pid, "host": one.host, "passes": one.passes}
                for one in ranks
            ],
        }

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of the group on this host, torchrun first."""
        group = self._group
        return () if group is None else group.pids

    def fail_all(self, error: BaseException) -> None:
        """End every job with `error` and the group with all its processes; waits for them."""
        with self._lock:
            self._closed = error
            thread = self._thread
        self._nudge()
        if thread is not None:
            thread.join(2 * _PREVIEW_WAIT_S)

    @property
    def exists(self) -> bool:
        """Whether there is a group, be it only about to start or to end.  Any thread."""
        return self._group is not None or bool(self._queue)

    def release(self, wait_s: float = 0.0) -> None:
        """End the group if nothing runs, so that its memory is free.  Any thread.

        Waits for the end as long as that; what is submitted later starts a new one.
        """
        if not self.exists or self._active or self._queue:
            return
        self._moved_s = float("-inf")
        self._nudge()
        self._gone.wait(wait_s)

    def _nudge(self) -> None:
        group = self._group
        self._wake.set()
        if group is not None:
            group.inbox.put((None, {"kind": "nudge"}))

    # ---- the watching thread -------------------------------------------------------------------

    def _run(self) -> None:
        while self._closed is None:
            try:
                self._drop_cancelled()
                self._admit()
                self._listen()
                self._watch()
            except Exception:  # noqa: BLE001 - the border of the thread: nobody waits for ever
                _log.exception("group_watch")
                self._fault("the server could not go on with the group (see its log)")
        if self._group is not None:
            self._group.end()
            self._group = None
        for entry in [*self._queue, *self._active.values()]:
            fail(entry, self._closed)

    def _drop_cancelled(self) -> None:
        for entry in [*self._queue, *self._active.values()]:
            stop = cancelled(entry.job)
            if stop is None or entry.asked_to_cancel is not None:
                continue
            entry.asked_to_cancel = stop
            if entry.number in self._active:
                self._send(kind="cancel", number=entry.number)
            else:
                with self._lock:
                    self._queue.remove(entry)
                fail(entry, stop)

    def _admit(self) -> None:
        """Hand jobs over in order, as many as share the group."""
        while self._queue:
            entry = self._queue[0]
            if self._group is None:
                self._start(entry)
                return
            alone = entry.alone or any(other.alone for other in self._active.values())
            if alone and self._active:
                return
            if self._splits_otherwise(entry):
                return
            if not self._fits(entry):
                if not self._active:
                    self._end_group("the next job is split in another way")
                return
            if not self._group.ready:
                return
            with self._lock:
                self._queue.popleft()
            self._hand_over(entry)

    def _fits(self, entry: Entry) -> bool:
        """Whether the group as it was started can take the job."""
        assert self._group is not None
        return self._plan_group(entry.job) == self._group.plan

    def _splits_otherwise(self, entry: Entry) -> bool:
        """Whether jobs run that are split in another way: ranks change while nothing runs."""
        running = {other.job.split for other in self._active.values()}
        return bool(running) and running != {entry.job.split}

    def _start(self, entry: Entry) -> None:
        self._keys, self._moved_s = set(), time.monotonic()
        self._gone.clear()
        self._counts.starts += 1
        try:
            plan = self._plan_group(entry.job)
            self._group = Group(plan, settings_of_ranks(self._settings), self._versions)
            if entry.job.on_phase is not None:
                entry.job.on_phase("loading", 0.01, _starting(plan))
            self._group.start()
        except OSError as error:
            self._fault(f"the group could not be started: {error}")
        except InlineError as error:
            self._fault(error.message, error.code, again=False)

    def _hand_over(self, entry: Entry) -> None:
        assert self._group is not None
        assert entry.job.split is not None
        entry.tries, entry.steps = entry.tries + 1, False
        entry.sent_s = self._moved_s = time.monotonic()
        self._active[entry.number] = entry
        self._keys.add(entry.job.split.key)
        self._group.trim_log()
        entry.unsure = set(self._group.hosts)
        for host in self._group.hosts:
            host.outbox.post(kind="files", number=entry.number, files=files_of(entry.job))
        if not entry.unsure:
            self._give(entry)

    def _give(self, entry: Entry) -> None:
        bare = replace(entry.job, cancel=None, on_step=None, on_phase=None)
        try:
            self._send(kind="job", number=entry.number, job=bare)
        except InlineError as error:
            del self._active[entry.number]
            fail(entry, error)
            return
        if entry.asked_to_cancel is not None:
            self._send(kind="cancel", number=entry.number)

    def _send(self, **message: Any) -> None:
        """To the leader; one that is gone is noticed by its connection."""
        group = self._group
        with contextlib.suppress(KeyError):
            if group is not None:
                group.leader.outbox.post(**message)

    def _listen(self) -> None:
        """Wait a little for messages, and handle all there are."""
        group = self._group
        if group is None:
            self._wake.wait(_TICK_S)
            self._wake.clear()
            return
        with contextlib.suppress(queue.Empty):
            peer, message = group.inbox.get(timeout=_TICK_S)
            while self._group is group:
                self._handle(group, peer, message)
                peer, message = group.inbox.get_nowait()

    def _handle(self, group: Group, peer: Peer | None, message: dict[str, Any]) -> None:
        if isinstance(peer, HostState):
            self._of_host(group, peer, message)
        elif peer is not None and message["kind"] == "hello":
            group.welcome(peer, message)
        elif peer is not None and group.ranks.get(peer.rank) is peer:
            peer.beat_s = time.monotonic()
            self._of_rank(group, peer, message)

    def _of_rank(self, group: Group, rank: RankState, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "beat":
            if message["passes"] != rank.passes:
                self._moved_s = time.monotonic()
            rank.passes = message["passes"]
        elif kind == "ready":
            rank.ready = True
            self._moved_s = time.monotonic()
            if group.ready:
                self._counts.start_s = time.monotonic() - group.started_s
        elif kind == "failed":
            words = f"{rank.in_words} failed during {message['doing']}: {message['message']}"
            group.note(Sign("failed", words, rank.rank, message["code"], echo=message["echo"]))
        elif kind == "gone":
            lead = " (the leading rank)" if rank.rank == group.plan.world - 1 else ""
            why = f": {message['why']}" if "why" in message else ""
            group.note(Sign("gone", f"{rank.in_words}{lead} ended{why}", rank.rank))
        elif "number" in message:
            self._about_job(self._active.get(message["number"]), message)

    def _of_host(self, group: Group, host: HostState, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "host":
            group.welcome_host(host, message)
        elif host in group.hosts and kind == "gone":
            words = f"host {host.host} left: `inline-core join` ended there, or nothing reaches it"
            group.note(Sign("host", words))
        elif host in group.hosts and kind == "files":
            entry = self._active.get(message["number"])
            if entry is None or host not in entry.unsure:
                return
            entry.unsure.remove(host)
            if message["differ"]:
                del self._active[entry.number]
                differ = "; ".join(message["differ"])
                fail(entry, ModelFileInvalid(f"Files of host {host.host}: {differ}"))
            elif not entry.unsure:
                self._give(entry)

    def _about_job(self, entry: Entry | None, message: dict[str, Any]) -> None:
        if entry is None:
            return
        self._moved_s = time.monotonic()
        job, kind = entry.job, message["kind"]
        entry.steps = entry.steps or kind == "step"
        if kind == "step" and job.on_step is not None:
            report: StepReport = message["report"]
            if message["shows"]:
                report = replace(report, preview=lambda: self._preview(entry))
            job.on_step(report)
        elif kind == "phase" and job.on_phase is not None:
            job.on_phase(message["phase"], message["fraction"], message["status"])
        elif kind == "picture" and entry.picture is not None:
            waiting, entry.picture = entry.picture, None
            waiting.set_result(message["picture"])
        elif kind in {"result", "error", "cancelled"}:
            self._settle(entry, message)

    def _settle(self, entry: Entry, message: dict[str, Any]) -> None:
        del self._active[entry.number]
        kind, counts = message["kind"], self._counts
        counts.sampler, counts.pool = message["sampler"], message["pool"]
        if kind == "result":
            self._counts.jobs += 1
            spent_s = time.monotonic() - entry.sent_s
            self._counts.ipc_ms = (spent_s - message["spent_s"]) * 1000
            end(entry)
            entry.future.set_result(message["result"])
        elif kind == "cancelled":
            fail(entry, entry.asked_to_cancel or RunCancelled())
        else:
            fail(entry, error_of(message["code"], message["message"]))

    def _preview(self, entry: Entry) -> bytes:
        """What the job looks like now; waits for the leader.  Not on the watching thread.

        Raises: Unavailable where there is nothing to show, TimeoutError.
        """
        waiting: Future[bytes | None] = Future()
        entry.picture = waiting
        self._send(kind="preview", number=entry.number)
        picture = None if entry.future.done() else waiting.result(_PREVIEW_WAIT_S)
        if picture is None:
            message = "the group has no preview of this step"
            raise Unavailable(message)
        return picture

    # ---- faults --------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Notice what sends no message: torchrun that ended, ranks that stand still, idleness."""
        group = self._group
        if group is None:
            return
        group.look()
        cause = group.cause()
        if cause is not None:
            self._fault(cause.words, cause.code, again=cause.kind != "refused")
        elif not group.ready:
            limit_s = self._settings.parallel_start_timeout_s
            if not group.signs and time.monotonic() - group.started_s > limit_s:
                self._fault(f"the group is not there after {limit_s:g} s: {group.missing()}")
        elif not group.signs:
            self._watch_progress(group)

    def _watch_progress(self, group: Group) -> None:
        still_s = time.monotonic() - self._moved_s
        limit_s = self._settings.parallel_step_timeout_s
        if not all(entry.steps for entry in self._active.values()):
            # Models are loaded and libraries imported, which is no step.
            limit_s = max(limit_s, self._settings.parallel_start_timeout_s)
        silent = group.silent(max(self._settings.parallel_step_timeout_s, _SILENT_S))
        if self._active and still_s > limit_s:
            self._fault(f"no progress for {limit_s:g} s: {group.stalled()}")
        elif silent is not None:
            self._fault(f"{silent.in_words} stalled, without a sign of life")
        elif not self._active and not self._queue:
            idle_s = self._settings.parallel_idle_s
            if still_s == float("inf") or (idle_s and still_s > idle_s):
                self._end_group("idle")

    def _end_group(self, why: str) -> None:
        group, self._group = self._group, None
        assert group is not None
        _log.info("group_ended", why=why)
        group.dissolve(self._drop_cancelled)
        self._gone.set()

    def _fault(self, reason: str, code: str = WorkerLost.code, *, again: bool = True) -> None:
        """End the group, and begin its jobs once more, or fail those that were begun twice."""
        group, self._group = self._group, None
        was_ready = group is not None and group.ready
        if group is not None:
            group.end()
        self._gone.set()
        self._counts.faults.append(reason)
        _log.warning("group_fault", reason=reason, code=code, jobs=len(self._active))
        lost, self._active = list(self._active.values()), {}
        if not was_ready:
            # Nobody has begun; whoever waits has waited in vain once.
            with self._lock:
                waiting = list(self._queue)
                self._queue.clear()
            for entry in waiting:
                entry.tries += 1
            lost += waiting
        again_for = []
        for entry in lost:
            if entry.asked_to_cancel is not None:
                fail(entry, entry.asked_to_cancel)
            elif again and entry.tries < _TRIES:
                entry.alone = entry.alone or code == OutOfMemory.code
                again_for.append(entry)
            else:
                fail(entry, _error(reason, code))
        with self._lock:
            self._queue.extendleft(reversed(again_for))


def settings_of_ranks(settings: Settings) -> dict[str, Any]:
    """What ranks are told of the settings: no secrets, as the way to other hosts is not encrypted.

    Any thread.
    """
    return settings.model_dump(mode="json", exclude=set(_SECRETS))


def _starting(plan: GroupPlan) -> str:
    if plan.meeting is None:
        return f"Starting {plan.world} processes"
    return f"Starting {plan.world} processes on {plan.meeting.hosts} hosts, as soon as they join"


def _error(words: str, code: str) -> InlineError:
    if code != WorkerLost.code:
        return error_of(code, words)
    return WorkerLost(f"The group of processes was lost: {words}")
