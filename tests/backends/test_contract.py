"""What every sampler backend promises."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inline_core.errors import (
    InvalidParam,
    ModelFileInvalid,
    NotFinite,
    RunCancelled,
    Unavailable,
)
from inline_core.loading.component import Role
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from inline_core.sampling.values import Latent
from tests import tiny
from tests.backends.conftest import GROUP, WAIT_S, Bench, make_bench, open_bench

TOLERANCE = 1e-4


@pytest.fixture(params=["inprocess", "inprocess-lane", GROUP])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Every backend: this process, with a lane, and a group of two ranks."""
    yield from open_bench(request)


class Cancel:
    def __init__(self) -> None:
        self.asked = threading.Event()

    def check(self) -> None:
        if self.asked.is_set():
            raise RunCancelled


def together(bench: Bench, jobs: Sequence[SampleJob]) -> list[Future[SampleResult]]:
    """Submit jobs so that all of them are waiting when the sampler looks."""
    gate, started = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        gate.wait(20)

    bench.device.call(block)
    assert started.wait(20)
    futures = [bench.sampler.submit(job) for job in jobs]
    gate.set()
    return futures


def largest_difference(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left - right).abs().max())


MIXED: list[dict[str, Any]] = [
    {"prompt": "a red circle", "seed": 1},
    {"prompt": "a much longer prompt about a blue square on a green background" * 2, "seed": 2},
    {"prompt": "", "seed": 3, "steps": 7, "scheduler": "beta"},
    {"prompt": "a", "seed": 4, "sampler": "heun", "steps": 3},
    {"prompt": "b", "seed": 5, "sampler": "euler_a", "scheduler": "karras"},
    {"prompt": "c", "seed": 6, "sampler": "dpmpp_2m", "batch": 2},
]


@pytest.mark.parametrize("guided", [False, True])
def test_batched_equals_alone(bench: Bench, guided: bool) -> None:
    extra: dict[str, Any] = {"cfg": 4.0, "negative": "blurry, bad"} if guided else {}
    jobs = [bench.job(**case, **extra) for case in MIXED]
    alone = [bench.latents(job) for job in jobs]
    before = bench.sampler.stats()["forwards"]
    results = [future.result(WAIT_S) for future in together(bench, jobs)]
    forwards = bench.sampler.stats()["forwards"] - before
    # With a lane the first job does not wait until the others are prepared.
    exact = bench.lane is None and not bench.is_group
    assert forwards == 7 if exact else 7 <= forwards <= 16
    for job, single, result in zip(jobs, alone, results, strict=True):
        assert result.provenance["batch"] > 1
        assert largest_difference(result.latent.samples, single) < TOLERANCE, job.sampler
    assert largest_difference(alone[0], alone[1]) > 0.1


def test_guidance_of_each_member_is_its_own(bench: Bench) -> None:
    jobs = [bench.job(cfg=cfg, negative="x") for cfg in (0.5, 2.0, 6.0)]
    alone = [bench.latents(job) for job in jobs]
    for future, single in zip(together(bench, jobs), alone, strict=True):
        assert largest_difference(future.result(WAIT_S).latent.samples, single) < TOLERANCE
    assert largest_difference(alone[0], alone[2]) > 0.1


def test_one_picture_a_pass_is_bit_repeatable(strict_bench: Bench) -> None:
    jobs = [strict_bench.job(prompt=text, seed=3) for text in ("a", "bb", "ccc")]
    alone = [strict_bench.latents(job) for job in jobs]
    for future, single in zip(together(strict_bench, jobs), alone, strict=True):
        assert torch.equal(future.result(WAIT_S).latent.samples, single)
    four = strict_bench.latents(strict_bench.job(seed=10, batch=4))
    for index in range(4):
        assert torch.equal(four[index], strict_bench.latents(strict_bench.job(seed=10 + index))[0])
    assert strict_bench.sampler.stats()["largestBatch"] == 1


def test_picture_i_of_a_batch_is_that_of_seed_plus_i(bench: Bench) -> None:
    result = bench.sampler.submit(bench.job(seed=7, batch=4)).result(WAIT_S)
    assert result.provenance["seeds"] == [7, 8, 9, 10]
    for index in range(4):
        single = bench.latents(bench.job(seed=7 + index))[0]
        assert largest_difference(result.latent.samples[index], single) < TOLERANCE


def test_same_seed_same_bits_other_seed_other_picture(bench: Bench) -> None:
    first, again = bench.latents(bench.job()), bench.latents(bench.job())
    assert torch.equal(first, again)
    assert largest_difference(first, bench.latents(bench.job(seed=8))) > 0.1
    assert first.dtype == torch.float32
    assert first.shape == (1, 16, 8, 8)


def test_jobs_that_do_not_match_wait_for_their_turn(bench: Bench) -> None:
    jobs = [bench.job(), bench.job(size=96), bench.job(cfg=3.0), bench.job(seed=9)]
    alone = [bench.latents(job) for job in jobs]
    before = bench.sampler.stats()["refused"]
    for future, single in zip(together(bench, jobs), alone, strict=True):
        assert largest_difference(future.result(WAIT_S).latent.samples, single) < TOLERANCE
    refused = bench.sampler.stats()["refused"]
    assert {why for why, count in refused.items() if count > before.get(why, 0)} == {"other_size"}


def test_a_job_joins_a_running_batch(bench: Bench) -> None:
    joined: list[Future[SampleResult]] = []
    late = bench.job(seed=99)

    def on_step(report: StepReport) -> None:
        if report.step == 2:
            joined.append(bench.sampler.submit(late))

    single = bench.latents(late)
    first = bench.sampler.submit(replace(bench.job(steps=8), on_step=on_step)).result(WAIT_S)
    second = joined[0].result(WAIT_S)
    assert first.provenance["batch"] == second.provenance["batch"] == 2
    assert largest_difference(second.latent.samples, single) < TOLERANCE


def test_cancel_within_a_step_leaves_the_others_alone(bench: Bench) -> None:
    cancel = Cancel()
    steps: list[int] = []

    def on_step(report: StepReport) -> None:
        steps.append(report.step)
        if report.step == 3:
            cancel.asked.set()

    stopped = replace(bench.job(steps=50), cancel=cancel, on_step=on_step)
    other = bench.job(seed=5, steps=6)
    single = bench.latents(other)
    first, second = together(bench, [stopped, other])
    with pytest.raises(RunCancelled):
        first.result(WAIT_S)
    # Another process hears of it while it is at the next step.
    assert steps == list(range(1, len(steps) + 1))
    assert 3 <= len(steps) <= (6 if bench.is_group else 3)
    assert largest_difference(second.result(WAIT_S).latent.samples, single) < TOLERANCE
    assert bench.sampler.stats()["active"] == 0
    assert all(item["leases"] == 0 for item in bench.pool.stats()["held"])


def test_a_waiting_job_is_cancelled_without_being_loaded(bench: Bench) -> None:
    cancel = Cancel()
    cancel.asked.set()
    misses = bench.pool.stats()["misses"]
    with pytest.raises(RunCancelled):
        bench.sampler.submit(replace(bench.job(), cancel=cancel)).result(WAIT_S)
    assert bench.pool.stats()["misses"] == misses


def test_cancel_during_the_load_frees_what_was_half_loaded(bench: Bench) -> None:
    if bench.is_group:
        pytest.skip("how often a job is asked is up to the server there; see splitting/test_faults")
    cancel = Cancel()

    class Countdown:
        left = 40  # encoder tensors come first, then those of the model

        def check(self) -> None:
            self.left -= 1
            if self.left < 0:
                cancel.check()

    cancel.asked.set()
    with pytest.raises(RunCancelled):
        bench.sampler.submit(replace(bench.job(), cancel=Countdown())).result(WAIT_S)
    assert "z.safetensors" not in [item["name"] for item in bench.pool.stats()["held"]]
    assert bench.latents(bench.job()).isfinite().all()


def test_nan_ends_only_its_own_job(tmp_path: Path) -> None:
    folder = tiny.save_models(tmp_path)
    state = tiny.original_keys(tiny.transformer().state_dict())
    state["final_layer.linear.bias"] = torch.full_like(
        state["final_layer.linear.bias"], float("nan")
    )
    tiny.save(state, folder / "diffusion_models/nan.safetensors")
    bench = make_bench(folder)
    good = bench.job(model="z.safetensors")
    bad, fine = together(bench, [bench.job(model="nan.safetensors"), good])
    with pytest.raises(NotFinite, match=r"step 1 of 4 \(nan.safetensors"):
        bad.result(WAIT_S)
    assert fine.result(WAIT_S).latent.samples.isfinite().all()
    assert bench.close()


def test_steps_are_reported_with_time_and_preview(bench: Bench) -> None:
    reports: list[StepReport] = []
    phases: list[tuple[str, float, str]] = []
    job = replace(
        bench.job("a prompt that nobody has read before", sampler="heun"),
        on_step=reports.append,
        on_phase=lambda *phase: phases.append(phase),
    )
    bench.sampler.submit(job).result(WAIT_S)
    assert [report.step for report in reports] == [1, 2, 3, 4]
    assert all(report.step_count == 4 for report in reports)
    assert [report.sigma for report in reports] == pytest.approx([0.9, 0.75, 0.5, 0.0])
    first = reports[0]
    assert reports[-1].eta_s == 0
    assert first.eta_s is not None
    assert first.eta_s > 0
    assert first.preview is not None
    if bench.is_group:
        with pytest.raises(Unavailable):
            first.preview()  # of a job that is over; see splitting/test_equality for one that runs
    else:
        assert first.preview().startswith(b"\xff\xd8")
    begun = [phase[:2] for phase in phases if not phase[2].startswith("Starting")]
    assert begun == [("loading", 0.02), ("encode", 0.05)]


def test_part_of_the_schedule_starts_from_the_given_latents(bench: Bench) -> None:
    start = bench.sampler.submit(bench.job()).result(WAIT_S).latent
    none = bench.latents(bench.job(latent=start, denoise=0.0))
    assert torch.equal(none, start.samples)
    little = bench.latents(bench.job(latent=start, denoise=0.1, seed=9))
    much = bench.latents(bench.job(latent=start, denoise=0.9, seed=9))
    assert largest_difference(little, start.samples) < largest_difference(much, start.samples)
    full = bench.latents(bench.job(latent=start, denoise=1.0, seed=9))
    assert largest_difference(full, bench.latents(bench.job(seed=9))) < TOLERANCE


def test_what_cannot_work_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidParam, match="use one of euler"):
        bench.sampler.submit(bench.job(sampler="nope"))
    with pytest.raises(InvalidParam, match="use one of simple"):
        bench.sampler.submit(bench.job(scheduler="nope"))
    with pytest.raises(InvalidParam, match="width is 72"):
        bench.sampler.submit(bench.job(size=72)).result(WAIT_S)
    wrong = Latent(64, 64, samples=torch.zeros(1, 4, 8, 8), space="sd")
    with pytest.raises(InvalidParam, match="space sd"):
        bench.sampler.submit(bench.job(latent=wrong)).result(WAIT_S)
    assert bench.latents(bench.job()).isfinite().all()


def test_a_text_encoder_that_does_not_fit_is_named(tmp_path: Path) -> None:
    folder = tiny.save_models(tmp_path)
    wide = tiny.text_encoder(hidden_size=128)
    tiny.save_text_encoder_file(folder / "text_encoders/wide.safetensors", wide)
    bench = make_bench(folder)
    encoder = bench.catalog.find(Role.TEXT_ENCODER, "wide.safetensors")
    job = bench.job()
    wrong = replace(job, positive=replace(job.positive, encoder=encoder))
    with pytest.raises(ModelFileInvalid, match="hidden size 128, the model needs 64"):
        bench.sampler.submit(wrong).result(WAIT_S)
    assert bench.close()


def test_a_replaced_file_is_noticed(tmp_path: Path) -> None:
    folder = tiny.save_models(tmp_path)
    bench = make_bench(folder)
    job = bench.job()
    tiny.save(tiny.transformer(seed=5).state_dict(), folder / "diffusion_models/z.safetensors")
    with pytest.raises(ModelFileInvalid, match="replaced since the run was planned"):
        bench.sampler.submit(job).result(WAIT_S)
    assert bench.close()


def test_everything_ends_when_the_server_stops(bench: Bench) -> None:
    futures = together(bench, [bench.job(steps=200), bench.job(size=96)])
    bench.device.call(lambda: bench.sampler.fail_all(RuntimeError("stop"))).result(WAIT_S)
    for future in futures:
        with pytest.raises(RuntimeError, match="stop"):
            future.result(WAIT_S)
