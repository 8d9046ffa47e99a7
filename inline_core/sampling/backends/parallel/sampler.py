"""Jobs for a group of processes: handed over, followed, and begun again when a process is lost."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog

from inline_core.errors import (
    InlineError,
    InvalidParam,
    OutOfMemory,
    RunCancelled,
    Unavailable,
    WorkerLost,
    error_of,
)
from inline_core.sampling.backends.parallel.channel import sweep_shared
from inline_core.sampling.backends.parallel.group import Group, GroupPlan
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from inline_core.sampling.sigmas.schedules import sigmas_for
from inline_core.sampling.sigmas.tables import FlowTable
from inline_core.sampling.solvers import solver_named
from inline_core.settings import Settings

_log = structlog.get_logger(__name__)
_TICK_S: Final = 0.05
_TRIES: Final = 2
_PREVIEW_WAIT_S: Final = 5.0
_FAULTS_SHOWN: Final = 20


@dataclass(slots=True, eq=False)
class _Entry:
    """A job of the server; `alone` after memory ran out with others beside it."""

    number: int
    job: SampleJob
    future: Future[SampleResult]
    tries: int = 0
    alone: bool = False
    asked_to_cancel: BaseException | None = None
    sent_s: float = 0.0
    picture: Future[bytes | None] | None = None


@dataclass(slots=True)
class _Counts:
    """What `stats` shows."""

    jobs: int = 0
    starts: int = 0
    start_s: float = 0.0
    ipc_ms: float = 0.0
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
        self._queue: deque[_Entry] = deque()
        self._active: dict[int, _Entry] = {}
        self._group: Group | None = None
        self._keys: set[str] = set()
        self._moved_s = time.monotonic()
        self._closed: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._counts = _Counts()

    # ---- any thread ----------------------------------------------------------------------------

    def submit(self, job: SampleJob) -> Future[SampleResult]:
        """Queue a job; see `BatchedSampler.submit`."""
        solver_named(job.sampler).check(job.options)
        if job.sigmas is None:
            sigmas_for(job.scheduler, job.steps, FlowTable(), job.denoise)
        if job.latent.batch < 1 or job.seed < 0:
            message = f"a job needs a batch of 1 or more and a seed of 0 or more, got {job.seed}"
            raise InvalidParam(message)
        entry = _Entry(next(self._numbers), job, Future())
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

    def release(self) -> None:
        """End the group if nothing runs, so that its memory is free.  Any thread; returns at once.

        What waits starts a new one.
        """
        self._moved_s = float("-inf")
        self._nudge()

    def _nudge(self) -> None:
        group = self._group
        self._wake.set()
        if group is not None:
            group.inbox.put((-1, {"kind": "nudge"}))

    # ---- the watching thread -------------------------------------------------------------------

    def _run(self) -> None:
        sweep_shared()
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
            _fail(entry, self._closed)

    def _drop_cancelled(self) -> None:
        for entry in [*self._queue, *self._active.values()]:
            stop = _cancelled(entry.job)
            if stop is None or entry.asked_to_cancel is not None:
                continue
            entry.asked_to_cancel = stop
            if entry.number in self._active:
                self._send(kind="cancel", number=entry.number)
            else:
                with self._lock:
                    self._queue.remove(entry)
                _fail(entry, stop)

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
            if not self._fits(entry):
                if not self._active:
                    self._end_group("the next job is split in another way")
                return
            if not self._group.ready:
                return
            with self._lock:
                self._queue.popleft()
            self._hand_over(entry)

    def _fits(self, entry: _Entry) -> bool:
        """Whether the group as it was started can take the job."""
        assert self._group is not None
        assert entry.job.split is not None
        if self._plan_group(entry.job) != self._group.plan:
            return False
        # xDiT's groups are made once in a process, diffusers' for each model.
        key = entry.job.split.key
        xdit = {one for one in self._keys if one.startswith("xdit")}
        return not key.startswith("xdit") or xdit <= {key}

    def _start(self, entry: _Entry) -> None:
        group = Group(self._plan_group(entry.job), self._settings.model_dump(mode="json"))
        self._group, self._keys, self._moved_s = group, set(), time.monotonic()
        self._counts.starts += 1
        if entry.job.on_phase is not None:
            entry.job.on_phase("loading", 0.01, f"Starting {group.plan.world} processes")
        try:
            group.start()
        except OSError as error:
            self._fault(f"the group could not be started: {error}")

    def _hand_over(self, entry: _Entry) -> None:
        assert entry.job.split is not None
        entry.tries += 1
        entry.sent_s = self._moved_s = time.monotonic()
        self._active[entry.number] = entry
        self._keys.add(entry.job.split.key)
        bare = replace(entry.job, cancel=None, on_step=None, on_phase=None)
        self._send(kind="job", number=entry.number, job=bare)

    def _send(self, **message: Any) -> None:
        assert self._group is not None
        # A leader that is gone is noticed by its connection.
        with contextlib.suppress(OSError, KeyError):
            self._group.leader.channel.send(message)

    def _listen(self) -> None:
        """Wait a little for messages, and handle all there are."""
        group = self._group
        if group is None:
            self._wake.wait(_TICK_S)
            self._wake.clear()
            return
        with contextlib.suppress(queue.Empty):
            rank, message = group.inbox.get(timeout=_TICK_S)
            while self._group is group:
                self._handle(rank, message)
                rank, message = group.inbox.get_nowait()

    def _handle(self, rank: int, message: dict[str, Any]) -> None:
        assert self._group is not None
        kind = message["kind"]
        state = self._group.ranks.get(rank)
        if state is not None:
            state.beat_s = time.monotonic()
        if kind == "hello":
            self._welcome(rank, message)
        elif kind == "beat" and state is not None:
            if message["passes"] != state.passes:
                self._moved_s = time.monotonic()
            state.passes = message["passes"]
        elif kind == "ready" and state is not None:
            state.ready = True
            self._moved_s = time.monotonic()
            if self._group.ready:
                self._counts.start_s = time.monotonic() - self._group.started_s
        elif kind == "failed":
            where = state.in_words if state is not None else f"rank {rank}"
            reason = f"{where} failed during {message['doing']}: {message['message']}"
            self._fault(reason, message["code"])
        elif kind == "gone" and rank >= 0:
            self._lost(rank)
        elif "number" in message:
            self._about_job(self._active.get(message["number"]), message)

    def _welcome(self, rank: int, hello: dict[str, Any]) -> None:
        assert self._group is not None
        other = {
            name: version
            for name, version in hello["versions"].items()
            if version != self._versions.get(name)
        }
        self._group.welcome(rank, hello)
        if other:
            theirs = ", ".join(f"{name} {version}" for name, version in other.items())
            ours = ", ".join(f"{name} {self._versions.get(name)}" for name in other)
            self._fault(
                f"rank {rank} on {hello['host']} runs {theirs}, the server {ours}: install the "
                "same releases on all hosts",
                again=False,
            )

    def _about_job(self, entry: _Entry | None, message: dict[str, Any]) -> None:
        if entry is None:
            return
        self._moved_s = time.monotonic()
        job, kind = entry.job, message["kind"]
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

    def _settle(self, entry: _Entry, message: dict[str, Any]) -> None:
        del self._active[entry.number]
        kind = message["kind"]
        if kind == "result":
            self._counts.jobs += 1
            spent_s = time.monotonic() - entry.sent_s
            self._counts.ipc_ms = (spent_s - message["spent_s"]) * 1000
            entry.future.set_result(message["result"])
        elif kind == "cancelled":
            _fail(entry, entry.asked_to_cancel or RunCancelled())
        else:
            _fail(entry, error_of(message["code"], message["message"]))

    def _preview(self, entry: _Entry) -> bytes:
        """What the job looks like now; waits for the leader.  Not on the watching thread."""
        waiting: Future[bytes | None] = Future()
        entry.picture = waiting
        self._send(kind="preview", number=entry.number)
        picture = waiting.result(_PREVIEW_WAIT_S)
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
        code = group.agent_ended()
        if code is not None:
            self._fault(f"torchrun (process {group.pids[0]}) ended with code {code}", log=True)
            return
        still_s = time.monotonic() - self._moved_s
        limit_s = self._settings.parallel_step_timeout_s
        if not group.ready:
            if time.monotonic() - group.started_s > self._settings.parallel_start_timeout_s:
                missing = [
                    str(rank)
                    for rank in range(group.plan.world)
                    if rank not in group.ranks or not group.ranks[rank].ready
                ]
                self._fault(
                    f"the group is not there after {self._settings.parallel_start_timeout_s:g} s: "
                    f"rank {', '.join(missing)} did not join",
                    log=True,
                )
        elif self._active and still_s > limit_s:
            slow = group.slowest()
            name = slow.in_words if slow is not None else "a rank"
            self._fault(f"no progress for {limit_s:g} s: {name} stalled")
        elif not self._active and not self._queue:
            idle_s = self._settings.parallel_idle_s
            if still_s == float("inf") or (idle_s and still_s > idle_s):
                self._end_group("idle")

    def _lost(self, rank: int) -> None:
        """The connection of a rank ended.  What it said before is handled already."""
        assert self._group is not None
        state = self._group.ranks.get(rank)
        name = state.in_words if state is not None else f"rank {rank}"
        lead = " (the leading rank)" if rank == self._group.plan.world - 1 else ""
        self._fault(f"{name}{lead} ended", log=not self._group.ready)

    def _end_group(self, why: str) -> None:
        assert self._group is not None
        _log.info("group_ended", why=why)
        self._group.dissolve()
        self._group = None

    def _fault(
        self, reason: str, code: str = "worker_lost", *, again: bool = True, log: bool = False
    ) -> None:
        """End the group, and begin its jobs once more, or fail those that were begun twice."""
        group, self._group = self._group, None
        tail = ""
        if group is not None:
            tail = _last_error(group.log_tail()) if log else ""
            was_ready = group.ready
            group.end()
        else:
            was_ready = True
        words = f"{reason}: {tail}" if tail else reason
        self._counts.faults.append(words)
        _log.warning("group_fault", reason=words, code=code, jobs=len(self._active))
        lost, self._active = list(self._active.values()), {}
        if not was_ready:
            # Nobody has begun; whoever waits has waited in vain once.
            lost = [*lost, *self._queue]
            for entry in self._queue:
                entry.tries += 1
            with self._lock:
                self._queue.clear()
        again_for = []
        for entry in lost:
            if entry.asked_to_cancel is not None:
                _fail(entry, entry.asked_to_cancel)
            elif again and entry.tries < _TRIES:
                entry.alone = entry.alone or code == OutOfMemory.code
                again_for.append(entry)
            else:
                _fail(entry, self._error(words, code))
        with self._lock:
            self._queue.extendleft(reversed(again_for))

    def _error(self, words: str, code: str) -> InlineError:
        if code != WorkerLost.code:
            return error_of(code, words)
        return WorkerLost(f"The group of processes was lost: {words}")


def _fail(entry: _Entry, error: BaseException | None) -> None:
    if not entry.future.done():
        entry.future.set_exception(error or Unavailable("the render is stopping"))


def _last_error(tail: str) -> str:
    """The line of a log that says most: the last one that looks like an error."""
    lines: Sequence[str] = [line.strip() for line in tail.splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "error" in line]
    return (told or lines or [""])[-1][:300]


def _cancelled(job: SampleJob) -> BaseException | None:
    """Ask the job's run; anything it raises ends the job."""
    if job.cancel is None:
        return None
    try:
        job.cancel.check()
    except (RunCancelled, Exception) as stop:  # noqa: BLE001 - the border to the run
        return stop
    return None
