"""Whole jobs for the workers of a Ray cluster: handed over, followed, and begun again when lost."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import structlog

from inline_core.errors import (
    InlineError,
    RunCancelled,
    Unavailable,
    WorkerLost,
    error_of,
)
from inline_core.sampling.backends.parallel.codec import pack, unpack
from inline_core.sampling.backends.ray_driver import Driver
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from inline_core.sampling.submitted import cancelled, check_job
from inline_core.settings import Settings

_log = structlog.get_logger(__name__)
_TICK_S: Final = 0.05
_TRIES: Final = 2
_PREVIEW_WAIT_S: Final = 5.0
_FAULTS_SHOWN: Final = 20
_NUDGE: Final[Mapping[str, Any]] = {"kind": "nudge"}


@dataclass(slots=True, eq=False)
class _Entry:
    """A job of the server; `sent` once the driver has it."""

    number: int
    job: SampleJob
    future: Future[SampleResult]
    tries: int = 0
    sent: bool = False
    sent_s: float = 0.0
    asked_to_cancel: BaseException | None = None
    picture: Future[bytes | None] | None = None


@dataclass(slots=True)
class _Counts:
    """What `stats` shows beside the workers."""

    jobs: int = 0
    starts: int = 0
    start_s: float = 0.0
    overhead_ms: float = 0.0
    faults: deque[str] = field(default_factory=lambda: deque(maxlen=_FAULTS_SHOWN))


class RaySampler:
    """Implements `BatchedSampler`: every job is made by one worker of the cluster.

    A process of its own uses Ray (`driver` is its module); it is started with the first job, and
    again when it is lost or the cluster was not there.  A job whose worker is lost is begun once
    more, which gives the same picture.  `submit` and `stats` are for any thread.
    """

    def __init__(
        self,
        settings: Settings,
        versions: Mapping[str, str],
        driver: str,
        *,
        workers: int = 0,
        overrides: Sequence[Mapping[str, Any]] = (),
        connect_timeout_s: float = 60.0,
        start_timeout_s: float = 300.0,
    ) -> None:
        """`versions` are those that every worker must have.

        `connect_timeout_s` is how long the process may take to join, or to tell anything later,
        `start_timeout_s` how long a worker may take.
        `workers` (of an embedded cluster; 0: as many as there are devices) and `overrides`, the
        settings of each worker that are not the server's, are for tests.
        """
        self._settings = settings
        self._driver_module = driver
        self._connect_timeout_s = connect_timeout_s
        self._orders: dict[str, Any] = {
            "versions": dict(versions),
            "most_jobs": settings.max_batch + 1,
            "start_timeout_s": start_timeout_s,
            "order": {
                "address": settings.ray_address or "local",
                "settings": _sendable(settings),
                "workers": workers,
                "overrides": tuple(dict(one) for one in overrides),
            },
        }
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._entries: dict[int, _Entry] = {}
        self._driver: Driver | None = None
        self._closed: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._counts = _Counts()
        self._told: dict[str, Any] = {}

    # ---- any thread ----------------------------------------------------------------------------

    def submit(self, job: SampleJob) -> Future[SampleResult]:
        """Queue a job; see `BatchedSampler.submit`."""
        check_job(job)
        entry = _Entry(next(self._numbers), job, Future())
        with self._lock:
            if self._closed is not None:
                message = "the render is stopping"
                raise Unavailable(message)
            self._entries[entry.number] = entry
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ray-watch", daemon=True)
                self._thread.start()
        self._nudge()
        return entry.future

    def stats(self) -> dict[str, Any]:
        """Counts since the start, and the workers; see `BatchedSampler.stats`."""
        driver, counts, told = self._driver, self._counts, self._told
        with self._lock:
            unfinished = len(self._entries)
        active = int(told.get("active", 0))
        state = "none" if driver is None else "ready" if driver.connected else "starting"
        return {
            "cluster": self._settings.ray_address or "local",
            "state": state,
            "active": active,
            "waiting": max(unfinished - active, 0),
            "jobs": counts.jobs,
            "starts": counts.starts,
            "lastStartS": round(counts.start_s, 3),
            "lastOverheadMs": round(counts.overhead_ms, 3),
            "lost": int(told.get("lost", 0)),
            "faults": list(counts.faults),
            "workers": list(told.get("workers", ())),
        }

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes on this host that use Ray or belong to an embedded cluster."""
        driver = self._driver
        return () if driver is None else driver.pids

    def fail_all(self, error: BaseException) -> None:
        """End every job with `error`, all workers and an embedded cluster; waits for them."""
        with self._lock:
            self._closed = error
            thread = self._thread
        self._nudge()
        if thread is not None:
            thread.join()

    def _nudge(self) -> None:
        driver = self._driver
        self._wake.set()
        if driver is not None:
            driver.inbox.put(dict(_NUDGE))

    # ---- the watching thread -------------------------------------------------------------------

    def _run(self) -> None:
        while self._closed is None:
            try:
                self._drop_cancelled()
                self._hand_over()
                self._listen()
                self._watch()
            except Exception as error:  # noqa: BLE001 - the border of the thread: nobody waits for ever
                _log.exception("cluster_watch")
                self._fault(f"the server could not go on with the cluster ({error})", again=False)
        if self._driver is not None:
            self._driver.end()
            self._driver = None
        for entry in self._unfinished():
            self._fail(entry, self._closed)

    def _unfinished(self) -> list[_Entry]:
        with self._lock:
            return list(self._entries.values())

    def _drop_cancelled(self) -> None:
        for entry in self._unfinished():
            stop = cancelled(entry.job)
            if stop is None or entry.asked_to_cancel is not None:
                continue
            entry.asked_to_cancel = stop
            if entry.sent and self._driver is not None:
                self._driver.send(kind="cancel", number=entry.number)
            else:
                self._fail(entry, stop)

    def _hand_over(self) -> None:
        new = [entry for entry in self._unfinished() if not entry.sent]
        if not new:
            return
        if self._driver is None:
            self._start(new)
            return
        if not self._driver.connected:
            return
        for entry in new:
            try:
                body, blobs = pack(replace(entry.job, cancel=None, on_step=None, on_phase=None))
            except InlineError as error:
                self._fail(entry, error)
                continue
            entry.tries += 1
            entry.sent, entry.sent_s = True, time.monotonic()
            self._driver.send(
                kind="job",
                number=entry.number,
                model=entry.job.model.name,
                priority=entry.job.priority,
                body=body,
                blobs=blobs,
            )

    def _start(self, new: Sequence[_Entry]) -> None:
        self._counts.starts += 1
        for entry in new:
            if entry.job.on_phase is not None:
                entry.job.on_phase("loading", 0.01, "Joining the cluster")
        self._driver = Driver(self._driver_module, self._orders)
        try:
            self._driver.start()
        except OSError as error:
            self._fault(f"the process for Ray could not be started: {error}", again=False)

    def _listen(self) -> None:
        """Wait a little for messages, and handle all there are."""
        driver = self._driver
        if driver is None:
            self._wake.wait(_TICK_S)
            self._wake.clear()
            return
        with contextlib.suppress(queue.Empty):
            message = driver.inbox.get(timeout=_TICK_S)
            while self._driver is driver:
                self._handle(driver, message)
                message = driver.inbox.get_nowait()

    def _handle(self, driver: Driver, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind != "nudge":
            driver.heard_s = time.monotonic()
        if kind == "connected":
            driver.connected = True
            self._counts.start_s = time.monotonic() - driver.started_s
        elif kind == "stats":
            self._told = message["stats"]
        elif kind == "unreachable":
            self._fault(message["message"], again=False)
        elif kind == "gone":
            self._gone(driver)
        elif "number" in message:
            with self._lock:
                entry = self._entries.get(message["number"])
            if entry is not None:
                self._about_job(entry, message)

    def _about_job(self, entry: _Entry, message: dict[str, Any]) -> None:
        job, kind = entry.job, message["kind"]
        if kind == "step" and job.on_step is not None:
            report: StepReport = unpack(message["body"], ())
            if message["shows"]:
                report = replace(report, preview=lambda: self._preview(entry))
            job.on_step(report)
        elif kind == "phase" and job.on_phase is not None:
            job.on_phase(message["phase"], message["fraction"], message["status"])
        elif kind == "picture" and entry.picture is not None:
            waiting, entry.picture = entry.picture, None
            waiting.set_result(message["picture"])
        elif kind == "result":
            self._finish(entry, message)
        elif kind == "cancelled":
            self._fail(entry, entry.asked_to_cancel or RunCancelled())
        elif kind == "error":
            where = f" ({message['worker']})" if message["worker"] else ""
            self._fail(entry, error_of(message["code"], message["message"] + where))

    def _finish(self, entry: _Entry, message: Mapping[str, Any]) -> None:
        result: SampleResult = unpack(message["body"], message["blobs"])
        with self._lock:
            del self._entries[entry.number]
        self._counts.jobs += 1
        spent_s = time.monotonic() - entry.sent_s
        self._counts.overhead_ms = (spent_s - message["spent_s"]) * 1000
        notes = tuple(message["notes"])
        entry.future.set_result(replace(result, warnings=(*result.warnings, *notes)))

    def _preview(self, entry: _Entry) -> bytes:
        """What the job looks like now; waits for its worker.  Not on the watching thread."""
        waiting: Future[bytes | None] = Future()
        entry.picture = waiting
        driver = self._driver
        if driver is not None:
            driver.send(kind="preview", number=entry.number)
        picture = waiting.result(_PREVIEW_WAIT_S)
        if picture is None:
            message = "the worker has no preview of this step"
            raise Unavailable(message)
        return picture

    # ---- faults --------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Notice a cluster that does not let us in, and a process that stands still."""
        driver = self._driver
        if driver is None:
            return
        if driver.connected:
            if time.monotonic() - driver.heard_s > self._connect_timeout_s:
                self._fault(f"the process for Ray stood still for {self._connect_timeout_s:g} s")
        elif driver.exit_code is not None and driver.inbox.empty():
            self._gone(driver)
        elif time.monotonic() - driver.started_s > self._connect_timeout_s:
            words = f"it did not answer within {self._connect_timeout_s:g} s"
            self._fault(self._unreachable(words), again=False)

    def _gone(self, driver: Driver) -> None:
        code = driver.exit_code
        tail = _last_line(driver.log_tail())
        words = f"the process for Ray ended (code {code}): {tail}"
        if driver.connected:
            self._fault(words)
        else:
            self._fault(self._unreachable(words), again=False)

    def _unreachable(self, words: str) -> str:
        address = self._settings.ray_address
        return f"The Ray cluster at INLINE_RAY_ADDRESS={address} cannot be reached: {words}"

    def _fault(self, reason: str, *, again: bool = True) -> None:
        """End the process, and begin its jobs once more, or fail those that were begun twice."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.end()
        self._told = {}
        self._counts.faults.append(reason)
        _log.warning("cluster_fault", reason=reason)
        for entry in self._unfinished():
            entry.sent = False
            if entry.asked_to_cancel is not None:
                self._fail(entry, entry.asked_to_cancel)
            elif not again or entry.tries >= _TRIES:
                self._fail(entry, WorkerLost(reason))

    def _fail(self, entry: _Entry, error: BaseException | None) -> None:
        with self._lock:
            self._entries.pop(entry.number, None)
        if not entry.future.done():
            entry.future.set_exception(error or Unavailable("the render is stopping"))


def _sendable(settings: Settings) -> dict[str, Any]:
    """The settings as a worker gets them, which has another working folder."""
    values: dict[str, Any] = settings.model_dump(mode="json")
    for name in ("data_dir", "models_dir"):
        values[name] = str(Path(values[name]).absolute())
    values["extra_models_dirs"] = [str(path.absolute()) for path in settings.extra_models_dirs]
    for name in ("zimage_model", "zimage_vae", "zimage_text_encoder"):
        if values[name] and Path(values[name]).exists():
            values[name] = str(Path(values[name]).absolute())
    # Secrets are the server's own business.
    return {**values, "token": None, "parallel_key": None}


def _last_line(text: str) -> str:
    """The line of a log that says most: the last one that looks like an error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "error" in line]
    return (told or lines or ["nothing in its log"])[-1][:300]
