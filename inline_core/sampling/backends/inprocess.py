"""Continuous batching on the device thread of this process."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from inline_core.devices.worker import DeviceThread
from inline_core.errors import InlineError, InvalidParam, NotFinite, RunCancelled, Unavailable
from inline_core.sampling.batcher import BatchKey, choose
from inline_core.sampling.family import Denoiser, ModelSource, Prepared
from inline_core.sampling.guidance import combine, is_guided
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from inline_core.sampling.memory import as_out_of_memory, is_out_of_memory
from inline_core.sampling.noise import NoiseSource, picture_seed
from inline_core.sampling.schedules import SCHEDULES, sigmas_for
from inline_core.sampling.solvers import Query, Steps, solver_named


@dataclass(slots=True, eq=False)
class _Waiting:
    """A job in the queue."""

    job: SampleJob
    future: Future[SampleResult]
    key: BatchKey
    pictures: int
    overtaken: int = 0
    refused_for: str = ""


@dataclass(slots=True, eq=False)
class _Active:
    """A job being stepped; `query` is the estimate its solver waits for."""

    job: SampleJob
    future: Future[SampleResult]
    key: BatchKey
    pictures: int
    prepared: Prepared
    sigmas: tuple[float, ...]
    steps: Steps
    query: Query
    started_s: float
    overtaken: int = 0
    refused_for: str = ""
    largest_batch: int = 1
    denoised: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Forward:
    """Input of the model for one step of all jobs: `pair` times as many rows as pictures.

    `most` is how many pictures of this size the memory allows in one pass.
    """

    denoiser: Denoiser
    latents: Tensor
    sigmas: Tensor
    prompts: list[Any]
    pair: int
    most: int


@dataclass(slots=True)
class _Counts:
    """What `stats` shows."""

    jobs: int = 0
    forwards: int = 0
    pictures: int = 0
    largest_batch: int = 0
    last_prepare_s: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)


class InProcessSampler:
    """Steps all matching jobs together; jobs join and leave between steps.

    `max_batch` is the most pictures in one forward pass; 1 makes every picture bit-repeatable
    whatever else runs.  `submit` and `stats` are for any thread, the rest is for the device thread.
    """

    def __init__(self, device: DeviceThread, models: ModelSource, max_batch: int) -> None:
        self._device = device
        self._models = models
        self._max_batch = max_batch
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._active: list[_Active] = []
        self._counts = _Counts()
        device.set_background(self.tick)

    def submit(self, job: SampleJob) -> Future[SampleResult]:
        """Queue a job; see `BatchedSampler.submit`."""
        solver_named(job.sampler)
        if job.scheduler not in SCHEDULES:
            sigmas_for(job.scheduler, job.steps, 1.0)
        if job.latent.batch < 1 or job.seed < 0:
            message = f"a job needs a batch of 1 or more and a seed of 0 or more, got {job.seed}"
            raise InvalidParam(message)
        future: Future[SampleResult] = Future()
        entry = _Waiting(job, future, BatchKey.of(job), job.latent.batch)
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
            waiting = len(self._waiting)
        counts = self._counts
        return {
            "active": len(self._active),
            "waiting": waiting,
            "jobs": counts.jobs,
            "forwards": counts.forwards,
            "pictures": counts.pictures,
            "largestBatch": counts.largest_batch,
            "lastPrepareS": counts.last_prepare_s,
            "refused": dict(counts.refused),
        }

    def fail_all(self, error: BaseException) -> None:
        """End every job with `error`, when the server stops."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for entry in waiting:
            entry.future.set_exception(error)
        for active in list(self._active):
            self._finish(active, error=error)

    # ---- device thread -------------------------------------------------------------------------

    def tick(self) -> bool:
        """Let jobs in, step all of them once, let finished ones go; True while there is work."""
        self._drop_cancelled()
        self._admit()
        if self._active:
            self._step(list(self._active))
        with self._lock:
            return bool(self._active or self._waiting)

    def _drop_cancelled(self) -> None:
        with self._lock:
            waiting = list(self._waiting)
        for entry in waiting:
            stop = _cancelled(entry.job)
            if stop is not None:
                with self._lock:
                    self._waiting.remove(entry)
                entry.future.set_exception(stop)
        for active in list(self._active):
            stop = _cancelled(active.job)
            if stop is not None:
                self._finish(active, error=stop)

    def _admit(self) -> None:
        limit = max(self._max_batch, 1)
        while True:
            with self._lock:
                entry = choose(self._waiting, self._active, limit, self._counts.refused)
                if not isinstance(entry, _Waiting):
                    return
                self._waiting.remove(entry)
            error = self._try_start(entry)
            if error is not None and not isinstance(error, InlineError) and is_out_of_memory(error):
                self._models.free_unleased()
                error = self._try_start(entry)
            if error is not None:
                entry.future.set_exception(as_out_of_memory(error, "loading"))

    def _try_start(self, entry: _Waiting) -> BaseException | None:
        """Start a job; what it raised is given back without the tensors of its frames."""
        try:
            self._start(entry)
        except (Exception, RunCancelled) as error:  # noqa: BLE001 - the device-worker border
            return error
        return None

    def _start(self, entry: _Waiting) -> None:
        job = entry.job
        asked_s = time.monotonic()
        prepared = self._models.prepare(job)
        self._counts.last_prepare_s = time.monotonic() - asked_s
        try:
            sigmas = sigmas_for(job.scheduler, job.steps, prepared.schedule_shift, job.denoise)
            latents, noise = _start_latents(job, prepared, sigmas)
            if len(sigmas) < 2:  # noqa: PLR2004 - nothing to do between fewer than two sigmas
                entry.future.set_result(_result(job, prepared, latents, sigmas, 1))
                prepared.release()
                return
            steps = solver_named(job.sampler)(latents, sigmas, noise.draw)
            query = next(steps)
        except BaseException:
            prepared.release()
            raise
        self._counts.jobs += 1
        active = _Active(
            job,
            entry.future,
            entry.key,
            entry.pictures,
            prepared,
            sigmas,
            steps,
            query,
            time.monotonic(),
        )
        self._active.append(active)

    def _step(self, batch: Sequence[_Active]) -> None:
        """One estimate for everybody."""
        try:
            denoised = self._estimate(batch)
        except Exception as error:  # noqa: BLE001 - the device-worker border
            for active in batch:
                self._finish(active, error=as_out_of_memory(error, "denoising"))
            return
        members = sum(active.pictures for active in batch)
        for active, own in zip(batch, denoised, strict=True):
            active.largest_batch = max(active.largest_batch, min(members, self._max_batch))
            try:
                self._advance(active, own)
            except Exception as error:  # noqa: BLE001 - the device-worker border
                self._finish(active, error=error)

    def _estimate(self, batch: Sequence[_Active]) -> list[Tensor]:
        """The denoised estimates of all jobs, guidance applied."""
        latents = torch.cat([active.query.latents for active in batch])  # (members, c, h, w)
        sigmas = _per_member(batch, lambda active: active.query.sigma).to(latents.device)
        prompts = [active.prepared.positive for active in batch for _ in range(active.pictures)]
        pair = 1
        if batch[0].prepared.negative is not None:
            # The negative is a second half of the batch, so both share the forward pass.
            pair, latents, sigmas = 2, torch.cat([latents] * 2), torch.cat([sigmas] * 2)
            prompts += [
                active.prepared.negative for active in batch for _ in range(active.pictures)
            ]
        estimates = self._predict(
            _Forward(
                batch[0].prepared.denoiser,
                latents,
                sigmas,
                prompts,
                pair,
                min(active.prepared.max_pictures for active in batch),
            )
        )
        if pair > 1:
            cfg = _per_member(batch, lambda active: active.job.cfg).to(latents.device)
            wanted, unwanted = estimates.chunk(2)  # (members, c, h, w) each
            estimates = combine(wanted, unwanted, cfg)
        return list(torch.split(estimates, [active.pictures for active in batch]))

    def _predict(self, forward: _Forward) -> Tensor:
        """Passes of at most `max_batch` pictures; one by one after memory ran out."""
        try:
            return self._in_chunks(forward, max(1, min(self._max_batch, forward.most)))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # Outside of `except`: the error's traceback holds the tensors of the failed pass.
        self._models.free_unleased()
        return self._in_chunks(forward, 1)

    def _in_chunks(self, forward: _Forward, size: int) -> Tensor:
        members = forward.latents.shape[0] // forward.pair
        result = torch.empty_like(forward.latents)
        for start in range(0, members, size):
            # The positive and the negative of a picture stay in one pass.
            picked = [
                side * members + index
                for side in range(forward.pair)
                for index in range(start, min(start + size, members))
            ]
            result[picked] = forward.denoiser.predict(
                forward.latents[picked],
                forward.sigmas[picked],
                [forward.prompts[index] for index in picked],
            )
            pictures = len(picked) // forward.pair
            self._counts.forwards += 1
            self._counts.pictures += pictures
            self._counts.largest_batch = max(self._counts.largest_batch, pictures)
        return result

    def _advance(self, active: _Active, denoised: Tensor) -> None:
        if not bool(torch.isfinite(denoised).all()):
            step = active.query.step + 1
            message = (
                f"NaN or infinity in the latents at step {step} of {len(active.sigmas) - 1} "
                f"({active.job.model.name}, {active.prepared.dtype}): no picture was made"
            )
            raise NotFinite(message)
        before = active.query.step
        active.denoised = denoised
        try:
            active.query = active.steps.send(denoised)
        except StopIteration as end:
            self._report(active, before)
            self._finish(active, latents=end.value)
            return
        if active.query.step > before:
            self._report(active, before)

    def _report(self, active: _Active, step: int) -> None:
        if active.job.on_step is None:
            return
        count = len(active.sigmas) - 1
        done = step + 1
        eta_s = (time.monotonic() - active.started_s) / done * (count - done)
        encode = active.prepared.preview
        denoised = active.denoised
        preview = None
        if encode is not None and denoised is not None:
            first = denoised[0]  # (c, h, w)

            def preview() -> bytes:
                return encode(first)

        active.job.on_step(StepReport(done, count, active.sigmas[done], eta_s, preview))

    def _finish(
        self,
        active: _Active,
        *,
        latents: Tensor | None = None,
        error: BaseException | None = None,
    ) -> None:
        self._active.remove(active)
        active.prepared.release()
        active.steps.close()
        if error is not None or latents is None:
            active.future.set_exception(error or RuntimeError("the job ended without latents"))
            return
        result = _result(active.job, active.prepared, latents, active.sigmas, active.largest_batch)
        active.future.set_result(result)


def _cancelled(job: SampleJob) -> BaseException | None:
    """Ask the job's run; anything it raises ends the job."""
    if job.cancel is None:
        return None
    try:
        job.cancel.check()
    except (RunCancelled, Exception) as stop:  # noqa: BLE001 - the device-worker border
        return stop
    return None


def _per_member(batch: Sequence[_Active], value: Callable[[_Active], float]) -> Tensor:
    values = [value(active) for active in batch for _ in range(active.pictures)]
    return torch.tensor(values, dtype=torch.float32)  # (members,)


def _start_latents(
    job: SampleJob, prepared: Prepared, sigmas: tuple[float, ...]
) -> tuple[Tensor, NoiseSource]:
    """Pure noise, or the given latents with noise mixed in up to the first sigma."""
    latent, space = job.latent, prepared.space
    shape = (space.channels, latent.height // space.factor, latent.width // space.factor)
    noise = NoiseSource(job.seed, latent.batch, shape, prepared.device)
    given = latent.samples
    if given is None:
        # Without steps an empty latent stays empty, as in ComfyUI.
        start = sigmas[0] if sigmas else 0.0
        return start * noise.draw(), noise  # (pictures, c, h, w)
    clean = given.to(prepared.device, torch.float32)  # (pictures or 1, c, h, w)
    if clean.shape[1:] != shape or latent.space not in {None, space.name}:
        message = (
            f"the latent has shape {tuple(clean.shape[1:])} in space {latent.space}; the model "
            f"needs {shape} in space {space.name}"
        )
        raise InvalidParam(message, port="latent")
    clean = clean.expand(latent.batch, *shape)
    if not sigmas:
        return clean, noise
    return sigmas[0] * noise.draw() + (1 - sigmas[0]) * clean, noise


def _result(
    job: SampleJob,
    prepared: Prepared,
    latents: Tensor,
    sigmas: tuple[float, ...],
    largest_batch: int,
) -> SampleResult:
    samples = latents.to("cpu", torch.float32)
    provenance = {
        **prepared.provenance,
        "seed": job.seed,
        "seeds": [picture_seed(job.seed, index) for index in range(job.latent.batch)],
        "sampler": job.sampler,
        "scheduler": job.scheduler,
        "steps": job.steps,
        "cfg": job.cfg,
        "guided": is_guided(job.cfg),
        "denoise": job.denoise,
        "sigmas": [round(sigma, 7) for sigma in sigmas],
        "dtype": prepared.dtype,
        "device": prepared.device,
        "batch": largest_batch,
        "width": job.latent.width,
        "height": job.latent.height,
        "prompt": job.positive.prompt,
        "negative": job.negative.prompt if job.negative else "",
    }
    latent = replace(
        job.latent,
        samples=samples,
        space=prepared.space.name,
        size_bytes=samples.numel() * 4,
        provenance=provenance,
    )
    return SampleResult(latent, provenance, prepared.warnings)
