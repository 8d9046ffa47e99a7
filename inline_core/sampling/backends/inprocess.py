"""Continuous batching on the device thread of this process."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from inline_core.devices.worker import DeviceThread
from inline_core.errors import InlineError, RunCancelled, Unavailable
from inline_core.sampling.batcher import BatchKey, Member, choose
from inline_core.sampling.family import ModelSource, Prepared
from inline_core.sampling.forward import ForwardLimits, ForwardPasses
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from inline_core.sampling.memory import as_out_of_memory, is_out_of_memory
from inline_core.sampling.speeds import PassSpeeds
from inline_core.sampling.stepping import Ask, Stepping, Way
from inline_core.sampling.submitted import cancelled, check_job

if TYPE_CHECKING:
    from torch import Tensor


_VIDEO: Final = 4  # axes of the latents of one video, (channels, frames, height, width)


class _AbandonedError(Exception):
    """Every job of a forward pass was cancelled, so it is not finished."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A job in the queue, or one that is being prepared."""

    job: SampleJob
    future: Future[SampleResult]
    key: BatchKey
    pictures: int
    priority: int = 0
    overtaken: int = 0
    refused_for: str = ""


@dataclass(slots=True, eq=False)
class _Active:
    """A job being stepped."""

    job: SampleJob
    future: Future[SampleResult]
    key: BatchKey
    pictures: int
    prepared: Prepared
    stepping: Stepping
    started_s: float
    largest_batch: int = 1


@dataclass(slots=True)
class _Counts:
    """What `stats` shows beside the passes."""

    jobs: int = 0
    steps: int = 0
    abandoned: int = 0
    last_prepare_s: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)


class InProcessSampler:
    """Steps all matching jobs together; jobs join and leave between steps.

    `max_batch` is the most pictures in one forward pass; 1 makes every picture bit-repeatable
    whatever else runs.  With a `lane` jobs are prepared (weights read, prompts encoded) on that
    thread while others are stepped; without one, on the device thread between steps.
    `speeds` says how large passes are worth it; without it they are as large as they may be.
    `submit` and `stats` are for any thread, the rest is for the device thread.
    """

    def __init__(
        self,
        device: DeviceThread,
        models: ModelSource,
        max_batch: int,
        *,
        lane: DeviceThread | None = None,
        speeds: PassSpeeds | None = None,
    ) -> None:
        self._device = device
        self._models = models
        self._max_batch = max(max_batch, 1)
        self._lane = lane
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._preparing: list[_Waiting] = []
        self._ready: list[tuple[_Waiting, Prepared]] = []
        self._active: list[_Active] = []
        self._closed: BaseException | None = None
        self._counts = _Counts()
        self._passes = ForwardPasses(speeds, models.free_unleased)
        device.set_background(self.tick)

    def submit(self, job: SampleJob) -> Future[SampleResult]:
        """Queue a job; see `BatchedSampler.submit`."""
        check_job(job)
        future: Future[SampleResult] = Future()
        entry = _Waiting(job, future, BatchKey.of(job), job.latent.batch, job.priority)
        with self._lock:
            self._waiting.append(entry)
        try:
            self._device.kick()
        except Unavailable:
            with self._lock:
                if entry in self._waiting:
                    self._waiting.remove(entry)
            raise
        return future

    def stats(self) -> dict[str, Any]:
        """Counts since the start; see `BatchedSampler.stats`."""
        with self._lock:
            waiting, preparing = len(self._waiting), len(self._preparing)
        counts, passes = self._counts, self._passes.counts
        return {
            "active": len(self._active),
            "waiting": waiting,
            "preparing": preparing,
            "jobs": counts.jobs,
            "steps": counts.steps,
            "forwards": passes.forwards,
            "rows": passes.rows,
            "pictures": passes.pictures,
            "rowsPerForward": round(passes.rows / passes.forwards, 3) if passes.forwards else 0.0,
            "largestBatch": passes.largest_batch,
            "abandonedForwards": counts.abandoned,
            "gain": self._passes.last_gain(),
            "speeds": self._passes.speeds.stats() if self._passes.speeds is not None else {},
            "lastPrepareS": counts.last_prepare_s,
            "refused": dict(counts.refused),
        }

    def fail_all(self, error: BaseException) -> None:
        """End every job with `error`, when the server stops."""
        with self._lock:
            self._closed = error
            waiting = [*self._waiting, *self._preparing]
            self._waiting, self._preparing = [], []
            ready, self._ready = self._ready, []
        for _, prepared in ready:
            prepared.release()
        for entry in waiting:
            if not entry.future.done():
                entry.future.set_exception(error)
        for active in list(self._active):
            self._finish(active, error=error)

    # ---- device thread -------------------------------------------------------------------------

    def tick(self) -> bool:
        """Let jobs in, step all of them once, let finished ones go; True while there is work."""
        self._drop_cancelled()
        self._admit()
        self._take_ready()
        if self._active:
            self._step(list(self._active))
        with self._lock:
            # What is being prepared kicks the device when it is ready.
            return bool(self._active or self._ready or (self._waiting and not self._preparing))

    def _drop_cancelled(self) -> None:
        with self._lock:
            waiting = list(self._waiting)
        for entry in waiting:
            stop = cancelled(entry.job)
            if stop is not None:
                with self._lock:
                    self._waiting.remove(entry)
                entry.future.set_exception(stop)
        for active in list(self._active):
            stop = cancelled(active.job)
            if stop is not None:
                self._finish(active, error=stop)

    def _admit(self) -> None:
        while True:
            with self._lock:
                joined: list[Member] = [*self._active, *self._preparing]
                entry = choose(self._waiting, joined, self._max_batch, self._counts.refused)
                if not isinstance(entry, _Waiting):
                    return
                self._waiting.remove(entry)
                self._preparing.append(entry)
            if self._lane is None:
                self._prepare(entry)
                self._take_ready()
                continue
            try:
                self._lane.call(functools.partial(self._prepare, entry))
            except Unavailable as error:
                self._refuse(entry, error)

    def _prepare(self, entry: _Waiting) -> None:
        """Load and encode, on the lane or here; once more after memory ran out."""
        prepared, error = self._try_prepare(entry)
        if error is not None and not isinstance(error, InlineError) and is_out_of_memory(error):
            self._models.free_unleased()
            prepared, error = self._try_prepare(entry)
        if prepared is None:
            assert error is not None
            self._refuse(entry, as_out_of_memory(error, "loading"))
            return
        with self._lock:
            closed = self._closed
            if closed is None:
                self._ready.append((entry, prepared))
        if closed is not None:
            prepared.release()
        elif self._lane is not None:
            self._kick()

    def _try_prepare(self, entry: _Waiting) -> tuple[Prepared | None, BaseException | None]:
        """What was prepared, or what was raised without the tensors of its frames."""
        asked_s = time.monotonic()
        stop = cancelled(entry.job)
        if stop is not None:
            return None, stop
        try:
            prepared = self._models.prepare(entry.job)
        except (Exception, RunCancelled) as error:  # noqa: BLE001 - the device-worker border
            return None, error
        self._counts.last_prepare_s = time.monotonic() - asked_s
        return prepared, None

    def _refuse(self, entry: _Waiting, error: BaseException) -> None:
        with self._lock:
            if entry in self._preparing:
                self._preparing.remove(entry)
        if not entry.future.done():
            entry.future.set_exception(error)
        if self._lane is not None:
            self._kick()

    def _kick(self) -> None:
        try:
            self._device.kick()
        except Unavailable as error:
            self.fail_all(error)

    def _take_ready(self) -> None:
        with self._lock:
            ready, self._ready = self._ready, []
            for entry, _ in ready:
                if entry in self._preparing:
                    self._preparing.remove(entry)
        for entry, prepared in ready:
            try:
                self._start(entry, prepared)
            except Exception as error:  # noqa: BLE001 - the device-worker border
                prepared.release()
                if not entry.future.done():
                    entry.future.set_exception(as_out_of_memory(error, "denoising"))

    def _start(self, entry: _Waiting, prepared: Prepared) -> None:
        stepping = Stepping(entry.job, prepared)
        self._counts.jobs += 1
        active = _Active(
            entry.job,
            entry.future,
            entry.key,
            entry.pictures,
            prepared,
            stepping,
            time.monotonic(),
        )
        self._active.append(active)
        if stepping.done:
            self._finish(active)

    def _step(self, batch: Sequence[_Active]) -> None:
        """One estimate for everybody."""
        asks = [active.stepping.ask() for active in batch]

        def check() -> None:
            if all(cancelled(active.job) is not None for active in batch):
                raise _AbandonedError

        try:
            found, together = self._passes.estimate(
                batch[0].prepared.denoiser, asks, self._limits(batch), check
            )
        except _AbandonedError:
            self._counts.abandoned += 1
            self._drop_cancelled()
            return
        except Exception as error:  # noqa: BLE001 - the device-worker border
            for active in batch:
                self._finish(active, error=as_out_of_memory(error, "denoising"))
            return
        for active, asked, estimates in zip(batch, asks, found, strict=True):
            active.largest_batch = max(active.largest_batch, together)
            try:
                self._advance(active, asked, estimates)
            except Exception as error:  # noqa: BLE001 - the device-worker border
                self._finish(active, error=error)

    def _limits(self, batch: Sequence[_Active]) -> ForwardLimits:
        """How large passes may be: by the setting, by memory, and by what was measured."""
        most = min(active.prepared.max_pictures for active in batch)
        first = batch[0]
        kind = first.prepared.speed_key
        if kind:
            kind = f"{kind} {first.key.width}x{first.key.height}"
        apart = any(active.prepared.rows_apart for active in batch)
        return ForwardLimits(max(1, min(self._max_batch, most)), kind, apart)

    def _advance(self, active: _Active, asked: Ask, estimates: dict[Way, Tensor]) -> None:
        if active.stepping.advance(asked, estimates):
            self._counts.steps += 1
            self._report(active)
        if active.stepping.done:
            self._finish(active)

    def _report(self, active: _Active) -> None:
        if active.job.on_step is None:
            return
        stepping = active.stepping
        done, count = stepping.step, stepping.step_count
        eta_s = (time.monotonic() - active.started_s) / done * (count - done)
        preview = _preview(active.prepared.preview, stepping.denoised)
        active.job.on_step(StepReport(done, count, stepping.sigmas[done], eta_s, preview))

    def _finish(self, active: _Active, *, error: BaseException | None = None) -> None:
        self._active.remove(active)
        active.prepared.release()
        if active.future.done():
            pass
        elif error is not None:
            active.future.set_exception(error)
        else:
            active.future.set_result(active.stepping.result(active.largest_batch))
        active.stepping.close()


def _preview(
    encode: Callable[[Tensor], bytes] | None, denoised: Tensor | None
) -> Callable[[], bytes] | None:
    """How the first picture of an estimate is shown, if anybody wants to see it."""
    if encode is None or denoised is None:
        return None
    first = denoised[0]  # (channels, ...)
    if first.ndim == _VIDEO and first.shape[1] == 1:
        first = first[:, 0]  # (channels, height, width)
    return lambda: encode(first)
