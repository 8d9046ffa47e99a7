"""The seam behind which batches are run: in this process, or by a group of processes."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

from inline_core.sampling.job import SampleJob, SampleResult


class BatchedSampler(Protocol):
    """Takes jobs from any thread, runs them in batches."""

    def submit(self, job: SampleJob) -> Future[SampleResult]:
        """Queue a job.  The future gets its result, an InlineError, or RunCancelled.

        Raises: InvalidParam for an unknown sampler or scheduler, Unavailable when closing.
        """

    def stats(self) -> dict[str, Any]:
        """Counts for `/v1/health`: active, waiting, steps, largest batch, refusals by reason."""
