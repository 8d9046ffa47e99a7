"""Sections d and f: jobs stepped together, and whether a job is the same alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from device_check.bench import Bench, relative_error
from device_check.report import Row
from device_check.studio import WAIT_S, Studio, job_for, studio
from inline_core.sampling.job import SampleJob

NAME: Final = "d batches"
EQUALITY: Final = "f equality"
_STEPS: Final = 3
_MOST_OVERHEAD: Final = 1.1
_NEVER_SLOWER: Final = 0.95
_MOST_DIFFERENCE: Final = 0.05


def batches(bench: Bench) -> None:
    """Time of some jobs one after the other and together, and the sampler's overhead."""
    with studio(bench) as made:
        made.run([job_for(made.catalog, bench.small, steps=1)])
        for side in (bench.small, bench.side):
            for count in bench.batches:
                bench.deadline.check(2.0)
                _measure(bench, made, side, count)


def _measure(bench: Bench, made: Studio, side: int, count: int) -> None:
    jobs = [job_for(made.catalog, side, seed=number, steps=_STEPS) for number in range(count)]
    made.run([replace(job, steps=1) for job in jobs])  # kernels of this shape are chosen
    together = bench.device.seconds(lambda: made.run(jobs))
    add = bench.report.add
    if count > 1:
        alone = bench.device.seconds(lambda: [made.run([job]) for job in jobs])
        what = f"{count} jobs at {side}: serial / together"
        add(
            Row(
                NAME,
                what,
                alone / count,
                "s/job",
                together / count,
                at_least=bench.bound(_NEVER_SLOWER),
            )
        )
    bare = _STEPS * _bare_seconds(bench, made, jobs)
    gate = bench.bound(_MOST_OVERHEAD) if side == bench.side else None
    what = f"{count} jobs at {side}: through the sampler / bare forward"
    add(Row(NAME, what, together, "s", bare, at_most=gate))


def _bare_seconds(bench: Bench, made: Studio, jobs: Sequence[SampleJob]) -> float:
    """One forward pass of the same batch, without the sampler."""

    def measure() -> float:
        prepared = made.modules.prepare(jobs[0])
        try:
            latent = jobs[0].latent
            shape = (len(jobs), prepared.space.channels, latent.height // 8, latent.width // 8)
            latents = torch.randn(shape).to(prepared.device)  # (jobs, c, h, w)
            sigmas = torch.full((len(jobs),), 0.7, device=prepared.device)  # (jobs,)
            prompts = [prepared.positive] * len(jobs)
            times = [
                bench.device.seconds(lambda: prepared.denoiser.predict(latents, sigmas, prompts))
                for _ in range(2)
            ]
            return min(times)
        finally:
            prepared.release()

    return made.device.call(measure).result(WAIT_S)


def equality(bench: Bench) -> None:
    """The same job alone, alone again, and among three others of other prompts and lengths."""
    with studio(bench) as made:
        job = job_for(made.catalog, bench.small)
        prompts = ("a blue square", "a green star on the left " * 8, "")
        others = [
            job_for(made.catalog, bench.small, seed=100 + number, steps=3 + number, prompt=prompt)
            for number, prompt in enumerate(prompts)
        ]
        alone = made.latents(job)
        again = made.latents(job)
        bench.deadline.check()
        together = made.latents(job, others)
    add = bench.report.add
    _add_difference(bench, "alone, twice", again, alone, 0.0)
    _add_difference(bench, "alone and in a batch of 4", together, alone, _MOST_DIFFERENCE)
    finite = float(torch.isfinite(together).float().mean())
    add(Row(EQUALITY, "finite values", finite, "", 1.0, at_least=1.0))


def _add_difference(bench: Bench, what: str, found: Tensor, expected: Tensor, most: float) -> None:
    difference = float((found - expected).abs().max())
    error = relative_error(found, expected)
    same = "bit-equal" if torch.equal(found, expected) else "not bit-equal"
    bench.report.add(Row(EQUALITY, f"{what}: largest difference", difference, "", note=same))
    limit, gate = (most, 1.0) if most else (None, None)
    bench.report.add(Row(EQUALITY, f"{what}: relative", error, "", limit, at_most=gate, note=same))
