"""Many different jobs at once: each picture that is made is the one that is made alone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from inline_core.devices.placement import Dtype
from inline_core.errors import RunCancelled
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from inline_core.sampling.patches import (
    GuidanceInterval,
    NormaliseGuidance,
    RescaleGuidance,
    SkipLayers,
    with_patch,
)
from inline_core.sampling.solvers import SOLVERS
from inline_core.sampling.speeds import PassSpeeds
from inline_core.sampling.values import Conditioning
from tests import tiny, tiny_flux2
from tests.backends.conftest import Bench, make_bench
from tests.backends.test_contract import Cancel, together
from tests.lengths import at_length

JOBS = at_length(64, 32)
# FLUX.2 always has 512 tokens of text, and a processor without units for bfloat16 is slow.
FEWER = {
    ("flux-2", "bfloat16"): at_length(24, 12),
    ("z-image", "bfloat16"): at_length(64, 20),
}
SMALL_SIGMA = 0.0029
MODELS = {"z-image": tiny.shared_models, "flux-2": tiny_flux2.shared_flux2_models}
WORDS = ("red", "blue", "large", "circle", "a", "square", "on", "green", "background", "soft")


def random_job(bench: Bench, draw: random.Random, family: str) -> SampleJob:
    """A job with everything drawn at random; not all of them can share a pass."""
    prompt = " ".join(draw.choices(WORDS, k=draw.randint(0, 40)))
    cfg = draw.choice([1.0, 1.0, 2.5, 6.0])
    job = bench.job(
        prompt,
        family=family,
        size=draw.choice([64, 64, 64, 96, 128]),
        seed=draw.randrange(2**64),
        steps=draw.randint(1, 7),
        cfg=cfg,
        negative=draw.choice([None, "blurry"]) if cfg != 1.0 else None,
        sampler=draw.choice([*SOLVERS]),
        scheduler=draw.choice(["simple", "karras", "beta", "normal"]),
        batch=draw.choice([1, 1, 1, 2]),
        priority=draw.choice([0, 0, 3]),
    )
    model = job.model
    for patch in (RescaleGuidance(0.7), NormaliseGuidance(1.0), GuidanceInterval(1.0, 0.6, 1.0)):
        if draw.random() < 0.2:
            model = with_patch(model, patch)
    if draw.random() < 0.15:
        model = with_patch(model, SkipLayers((1,), 2.0, 0.0, 0.5))
    if draw.random() < 0.1:
        job = replace(job, second=Conditioning("another", job.positive.encoder), second_cfg=2.0)
    return replace(job, model=model)


def cancelled_at(job: SampleJob, step: int) -> SampleJob:
    cancel = Cancel()

    def on_step(report: StepReport) -> None:
        if report.step >= step:
            cancel.asked.set()

    if step == 0:
        cancel.asked.set()
    return replace(job, cancel=cancel, on_step=on_step)


def relative(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left - right).abs().max() / right.abs().max())


# bfloat16 was bit-equal where the processor has units for it (models.md 6); without them its
# matrix products are blocked by the number of rows, so there it is close, not equal.
CASES: list[tuple[Dtype, bool]] = [("float32", False), ("float32", True), ("bfloat16", False)]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize(("dtype", "lane"), CASES)
def test_each_of_many_is_as_when_alone(family: str, dtype: Dtype, lane: bool) -> None:
    bench = make_bench(MODELS[family](), lane=lane, dtype=dtype, speeds=PassSpeeds())
    draw = random.Random(f"{family} {dtype} {lane}")
    count = FEWER.get((family, dtype), JOBS)
    jobs = [random_job(bench, draw, family) for _ in range(count)]
    stops = {index: draw.randint(0, 3) for index in draw.sample(range(count), count * 3 // 16)}
    alone = {index: bench.latents(job) for index, job in enumerate(jobs) if index not in stops}
    asked = [
        cancelled_at(job, stops[index]) if index in stops else job for index, job in enumerate(jobs)
    ]
    futures = together(bench, asked)
    batches: list[int] = []
    for index, future in enumerate(futures):
        if index in stops and jobs[index].steps > stops[index]:
            with pytest.raises(RunCancelled):
                future.result(60)
        elif index not in stops:
            result: SampleResult = future.result(60)
            batches.append(result.provenance["batch"])
            check(dtype, result, alone[index], jobs[index])
    assert max(batches) > 2
    assert all(item["leases"] == 0 for item in bench.pool.stats()["held"])
    assert bench.close()


def check(dtype: Dtype, result: SampleResult, wanted: torch.Tensor, job: SampleJob) -> None:
    found: Any = result.latent.samples
    if dtype == "float32":
        # Heun's second slope is divided by the sigma it was taken at: 0.0007 with the karras
        # schedule of FLUX.2, so one rounding of float32 counts a thousandfold.
        last = min(sigma for sigma in (1.0, *result.provenance["sigmas"]) if sigma > 0)
        assert relative(found, wanted) <= (1e-5 if last > SMALL_SIGMA else 5e-4), job
    else:
        assert torch.equal(found, wanted), (relative(found, wanted), job)
