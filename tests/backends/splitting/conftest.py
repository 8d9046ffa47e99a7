"""A group of real processes over gloo, beside the sampler of this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from inline_core.devices.split import Split
from inline_core.engine.ranks.link import versions
from inline_core.errors import Unavailable
from inline_core.sampling.backends.parallel.group import GroupPlan
from inline_core.sampling.backends.parallel.sampler import GroupSampler
from inline_core.sampling.job import SampleJob, SampleResult
from inline_core.sampling.values import Latent
from inline_core.settings import Settings
from tests.backends.conftest import Bench, make_bench
from tests.backends.splitting.models import split_models
from tests.processes import alive

PATIENCE_S = 120


class Halves:
    """The same jobs made by a group and in this process."""

    def __init__(self) -> None:
        folder = split_models()
        self.whole: Bench = make_bench(folder)
        self.settings = Settings(
            models_dir=folder,
            demo_model=False,
            threads=1,
            profile="cpu",
            parallel_step_timeout_s=60,
        )
        self.group = GroupSampler(
            self.settings, lambda job: GroupPlan(_split_of(job).world), versions()
        )

    def job(self, family: str, **changes: Any) -> SampleJob:
        """A job of a family; a video is one of five frames."""
        if family == "wan":
            size = changes.pop("size", 64)
            changes["latent"] = Latent(size, size, changes.pop("batch", 1), frames=5)
        return self.whole.job(family=family, **changes)

    def split(self, key: str, *jobs: SampleJob) -> list[SampleResult]:
        """The results of a group, all jobs at once."""
        split = Split.of_key(key)
        futures = [self.group.submit(replace(job, split=split)) for job in jobs]
        return [future.result(PATIENCE_S) for future in futures]

    def alone(self, *jobs: SampleJob) -> list[torch.Tensor]:
        """The latents of this process, one job after the other."""
        return [self.whole.latents(job) for job in jobs]

    def close(self) -> None:
        """End the group; fails the test if a process of it is left."""
        pids = self.group.pids
        self.group.fail_all(Unavailable("the test is over"))
        assert self.whole.close()
        assert not alive(pids)


def _split_of(job: SampleJob) -> Split:
    assert job.split is not None
    return job.split


@pytest.fixture(scope="module")
def halves() -> Iterator[Halves]:
    made = Halves()
    yield made
    made.close()
