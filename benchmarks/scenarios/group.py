"""What a group of processes costs beside its denoising, and what its presence costs without one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Result, alternate
from benchmarks.scenarios.sampler import _bench

if TYPE_CHECKING:
    from inline_core.sampling.job import SampleJob

_ROOT = Path(__file__).resolve().parents[2]
_MOST_IPC_MS = 6.0


@contextmanager
def _group() -> Iterator[Any]:
    """Two ranks over gloo with the bundled model, which start with their first job."""
    from inline_core.engine.ranks.link import versions
    from inline_core.errors import Unavailable
    from inline_core.sampling.backends.parallel.group import GroupPlan
    from inline_core.sampling.backends.parallel.sampler import GroupSampler
    from inline_core.settings import Settings

    os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    settings = Settings(models_dir=Path("/nonexistent"), profile="cpu", threads=1)
    group = GroupSampler(settings, lambda _: GroupPlan(2), versions())
    yield group
    group.fail_all(Unavailable("the benchmark is over"))


def group_job(*, quick: bool) -> list[Result]:
    """Milliseconds of a job that are not denoising: the way there and back, for small and large."""
    from inline_core.devices.split import Split

    split = Split.of_key("diffusers:ulysses=2")
    results = []
    with _bench() as bench, _group() as group:
        group.submit(replace(bench.job(128, 1), split=split)).result(300)
        for side, what in ((128, "of 16 KiB"), (1024, "of 1 MiB"), (2048, "of 4 MiB")):
            job = replace(_short(bench.job(side, 1), side), split=split)
            result = Result(f"group: a job with latents {what}", "ms", "lower", gate=1.0)
            group.submit(job).result(600)
            for _ in range(5 if quick else 20):
                group.submit(job).result(600)
                result.us.append(group.stats()["lastIpcMs"])
                result.limit.append(_MOST_IPC_MS)
            result.note = f"limit: {_MOST_IPC_MS:g} ms"
            results.append(result)
    return results


def _short(job: SampleJob, side: int) -> SampleJob:
    """A large latent goes there and back without a step: its denoising is not measured."""
    if side <= 512:
        return job
    import torch

    shape = (1, 16, side // 8, side // 8)
    latent = replace(
        job.latent, samples=torch.zeros(shape), space="flux", normalised=True
    )  # (1, c, h, w)
    return replace(job, latent=latent, sigmas=(1.0,))


def group_absent(*, quick: bool) -> list[Result]:
    """A lone job where a group may be, and is not used, against the sampler alone."""
    from inline_core.sampling.backends.parallel.routed import RoutedSampler

    class _Never:
        def release(self) -> None:
            """Nothing is held."""

    with _bench() as bench:
        job = bench.job(256, 1)
        alone = bench.sampler
        never: Any = _Never()
        routed: Any = RoutedSampler(alone, never, lambda _: (None, ""))
        result = Result("in process, one device", "ms", "lower", gate=1.02)

        def seconds(sampler: Any) -> Callable[[], float]:
            def measure() -> float:
                bench.sampler = sampler
                return min(bench.seconds([job]) for _ in range(5)) * 1e3

            return measure

        bench.seconds([job])
        result = alternate(result, seconds(routed), seconds(alone), 6 if quick else 16)
        result.note = "limit: without the code for groups in between"
    return [result]


def group_start(*, quick: bool) -> list[Result]:
    """Seconds from the first job to ranks that are ready, mostly imports."""
    from inline_core.devices.split import Split

    result = Result("group: start of two ranks", "s", "lower")
    with _bench() as bench:
        for _ in range(1 if quick else 3):
            started = time.perf_counter()
            with _group() as group:
                split = Split.of_key("diffusers:ulysses=2")
                group.submit(replace(bench.job(128, 1), split=split)).result(300)
                result.us.append(time.perf_counter() - started)
    result.note = "with the first picture"
    return [result]
