"""What every sampler backend asks of a job: can it be made at all, and shall it still be."""

from __future__ import annotations

from inline_core.errors import InvalidParam, RunCancelled
from inline_core.sampling.job import SampleJob
from inline_core.sampling.sigmas.schedules import sigmas_for
from inline_core.sampling.sigmas.tables import FlowTable
from inline_core.sampling.solvers import solver_named


def check_job(job: SampleJob) -> None:
    """Look at what can be known before any model is loaded; any thread.

    Raises: InvalidParam for an unknown sampler or scheduler, wrong options, batch or seed.
    """
    solver_named(job.sampler).check(job.options)
    if job.sigmas is None:
        sigmas_for(job.scheduler, job.steps, FlowTable(), job.denoise)
    if job.latent.batch < 1 or job.seed < 0:
        message = f"a job needs a batch of 1 or more and a seed of 0 or more, got {job.seed}"
        raise InvalidParam(message)


def cancelled(job: SampleJob) -> BaseException | None:
    """Ask the job's run; anything it raises ends the job, and is given back."""
    if job.cancel is None:
        return None
    try:
        job.cancel.check()
    except (RunCancelled, Exception) as stop:  # noqa: BLE001 - the border to the run
        return stop
    return None
