"""What a job may ask for beside steps and guidance: ranges, masks, patches of the model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from inline_core.devices.budget import Demand
from inline_core.devices.ladder import Plan
from inline_core.devices.policy import DevicePolicy
from inline_core.errors import DoesNotFit, InvalidParam, NotFinite, RunCancelled
from inline_core.families.demand import OpenedFiles, demand_of_job
from inline_core.families.registry import family_of
from inline_core.loading.component import Role
from inline_core.sampling.job import SampleJob
from inline_core.sampling.patches import (
    FluxShift,
    GuidanceInterval,
    Shift,
    SkipLayers,
    StepCache,
    with_patch,
)
from inline_core.sampling.sigmas.schedules import sigmas_for
from inline_core.sampling.sigmas.tables import FlowTable
from inline_core.sampling.speeds import PassSpeeds
from inline_core.sampling.values import Conditioning
from inline_core.settings import Settings
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.backends.test_contract import Cancel, largest_difference, together


def test_two_halves_with_leftover_noise_make_the_whole(bench: Bench) -> None:
    whole = bench.job(steps=8, sampler="euler", seed=3)
    first = bench.sampler.submit(replace(whole, end_step=5, leftover_noise=True)).result(30)
    second = replace(whole, latent=first.latent, start_step=5, add_noise=False)
    assert largest_difference(bench.latents(second), bench.latents(whole)) < 1e-4
    assert first.provenance["range"] == [0, 5]
    assert len(first.provenance["sigmas"]) == 6
    cut = bench.latents(replace(whole, end_step=5))
    assert largest_difference(cut, first.latent.samples) > 0.1


def test_sigmas_of_ones_own(bench: Bench) -> None:
    plain = bench.job(steps=4)
    written = replace(plain, sigmas=sigmas_for("simple", 4, FlowTable(3.0)), steps=99)
    result = bench.sampler.submit(written).result(30)
    assert torch.equal(result.latent.samples, bench.latents(plain))
    assert result.provenance["scheduler"] == "sigmas"
    with pytest.raises(InvalidParam, match="0 or more"):
        bench.sampler.submit(replace(plain, sigmas=(1.0, float("nan"), 0.0))).result(30)


def test_a_shift_changes_the_sigmas(bench: Bench) -> None:
    job = bench.job(steps=4)
    shifted = bench.sampler.submit(replace(job, model=with_patch(job.model, Shift(1.0))))
    assert shifted.result(30).provenance["sigmas"] == [1.0, 0.75, 0.5, 0.25, 0.0]
    by_size = bench.sampler.submit(replace(job, model=with_patch(job.model, FluxShift())))
    assert by_size.result(30).provenance["sigmas"][1] == pytest.approx(0.829, abs=0.02)


def test_the_mask_decides_what_is_made_anew(bench: Bench) -> None:
    picture = bench.sampler.submit(bench.job(seed=1)).result(30).latent
    mask = np.zeros((64, 64), np.uint8)
    mask[:, 32:] = 255
    masked = bench.latents(bench.job(latent=replace(picture, mask=mask), seed=2))
    assert torch.allclose(masked[..., :3], picture.samples[..., :3], atol=1e-5)
    assert largest_difference(masked[..., 5:], picture.samples[..., 5:]) > 0.5
    plain = bench.latents(bench.job(latent=picture, seed=2))
    everything = replace(picture, mask=np.full((64, 64), 255, np.uint8))
    assert torch.equal(bench.latents(bench.job(latent=everything, seed=2)), plain)
    nothing = replace(picture, mask=np.zeros((64, 64), np.uint8))
    kept = bench.latents(bench.job(latent=nothing, seed=2))
    assert torch.allclose(kept, picture.samples, atol=1e-5)


def test_one_draw_shares_the_first_picture_only(bench: Bench) -> None:
    ours, theirs = bench.job(batch=2), replace(bench.job(batch=2), one_draw=True)
    alone = bench.latents(bench.job())
    both = bench.latents(theirs)
    assert largest_difference(both[:1], alone) < 1e-4
    assert largest_difference(both[1:], bench.latents(ours)[1:]) > 0.1


def rows_of(bench: Bench, job: SampleJob) -> int:
    before = bench.sampler.stats()["rows"]
    bench.latents(job)
    rows: int = bench.sampler.stats()["rows"] - before
    return rows


def test_negatives_are_estimated_only_where_they_count(bench: Bench) -> None:
    guided = bench.job(steps=4, cfg=3.0, negative="bad")
    assert rows_of(bench, bench.job(steps=4)) == 4
    assert rows_of(bench, guided) == 8
    # The sigmas are 1, 0.9, 0.75, 0.5: half of the sampling is done at 0.75.
    half = with_patch(guided.model, GuidanceInterval(1.0, 0.5, 1.0))
    assert rows_of(bench, replace(guided, model=half)) == 6
    plus = bench.job(steps=4, sampler="euler_cfg_pp", negative="bad")
    assert rows_of(bench, plus) == 8


def test_guided_and_unguided_share_passes(bench: Bench) -> None:
    jobs = [bench.job(seed=1), bench.job(seed=2, cfg=3.0, negative="bad")]
    before = bench.sampler.stats()["forwards"]
    for future in together(bench, jobs):
        assert future.result(30).latent.samples.isfinite().all()
    if bench.lane is None:
        assert bench.sampler.stats()["forwards"] - before == 4


def test_skipped_layers_are_left_out(bench: Bench) -> None:
    job = bench.job(seed=4)
    for scale, changes in ((0.0, False), (3.0, True)):
        skip = with_patch(job.model, SkipLayers((0,), scale, 0.0, 1.0))
        difference = largest_difference(bench.latents(replace(job, model=skip)), bench.latents(job))
        assert (difference > 0.01) is changes


def test_layers_that_are_not_there_are_refused(bench: Bench) -> None:
    job = bench.job()
    wrong = with_patch(job.model, SkipLayers((0, 99), 3.0, 0.0, 1.0))
    with pytest.raises(InvalidParam, match=r"z.safetensors has blocks 0 to \d+ .*, not 99"):
        bench.sampler.submit(replace(job, model=wrong)).result(30)
    assert all(item["leases"] == 0 for item in bench.pool.stats()["held"])


def test_a_range_without_steps_is_refused_or_told(bench: Bench) -> None:
    job = bench.job(steps=4)
    with pytest.raises(InvalidParam, match="start_step 3 is not before end_step 3"):
        bench.sampler.submit(replace(job, start_step=3, end_step=3)).result(30)
    latent = bench.sampler.submit(job).result(30).latent
    for nothing in ({"start_step": 9}, {"denoise": 0.0}):
        result = bench.sampler.submit(replace(job, latent=latent, **nothing)).result(30)
        assert torch.equal(result.latent.samples, latent.samples)
        assert any("No step was run" in text for text in result.warnings)


def test_the_step_cache_saves_blocks_and_says_so(bench: Bench) -> None:
    job = bench.job(steps=12, seed=4)
    exact = bench.latents(job)
    never = replace(job, model=with_patch(job.model, StepCache(0.0)))
    assert torch.equal(bench.latents(never), exact)
    always = replace(job, model=with_patch(job.model, StepCache(1e9)))
    result = bench.sampler.submit(always).result(30)
    assert result.provenance["stepCache"] == {"threshold": 1e9, "reusedPasses": 11}
    assert largest_difference(result.latent.samples, exact) > 1e-3
    inside = replace(job, model=with_patch(job.model, StepCache(1e9, 0.5, 1.0)))
    assert 0 < bench.sampler.submit(inside).result(30).provenance["stepCache"]["reusedPasses"] < 11
    assert torch.equal(bench.latents(job), exact)


def test_a_cached_job_is_the_same_in_company(bench: Bench) -> None:
    model = with_patch(bench.job().model, StepCache(0.3))
    jobs = [
        replace(bench.job("a red circle", steps=8, seed=1), model=model),
        replace(bench.job("a much longer prompt " * 8, steps=6, seed=2, cfg=2.0), model=model),
        bench.job("b", steps=7, seed=3),
    ]
    alone = [bench.latents(job) for job in jobs]
    for future, single in zip(together(bench, jobs), alone, strict=True):
        assert largest_difference(future.result(30).latent.samples, single) < 1e-4


def test_a_guidance_input_is_refused_by_a_model_without_one(bench: Bench) -> None:
    job = bench.job()
    wrong = replace(job, positive=Conditioning("a", job.positive.encoder, guidance=3.5))
    with pytest.raises(InvalidParam, match="does not take its guidance as an input: use cfg"):
        bench.sampler.submit(wrong).result(30)


def test_unknown_solver_options_are_refused(bench: Bench) -> None:
    with pytest.raises(InvalidParam, match="euler has no option 'eta'"):
        bench.sampler.submit(replace(bench.job(), options={"eta": 1.0}))
    calm = replace(bench.job(sampler="euler_a"), options={"eta": 0.0})
    assert largest_difference(bench.latents(calm), bench.latents(bench.job())) < 1e-4


class After:
    """A cancel check that says no after some number of questions."""

    def __init__(self, questions: int) -> None:
        self.left = questions
        self.asked = 0

    def check(self) -> None:
        self.asked += 1
        if self.asked > self.left:
            raise RunCancelled


def test_cancel_stops_within_one_block(bench: Bench) -> None:
    job = bench.job(steps=50)
    bench.latents(bench.job(steps=1))
    before = bench.sampler.stats()
    calls: list[int] = []

    class Once:
        """Cancelled from the third block of the second step on."""

        stop = False

        def check(self) -> None:
            if self.stop:
                raise RunCancelled

    cancel = Once()
    future = bench.sampler.submit(
        replace(job, cancel=cancel, on_step=lambda report: calls.append(report.step))
    )
    probe = threading.Event()

    def stop_at_second_pass() -> None:
        cancel.stop = True
        probe.set()

    watch_blocks(bench, at_call=3, then=stop_at_second_pass)
    with pytest.raises(RunCancelled):
        future.result(30)
    assert probe.is_set()
    after = bench.sampler.stats()
    assert after["abandonedForwards"] - before["abandonedForwards"] == 1
    assert bench.latents(bench.job(seed=5)).isfinite().all()


def watch_blocks(bench: Bench, at_call: int, then: Callable[[], None]) -> None:
    """Call `then` when the blocks of the model have been called so often."""
    held = [value for value in bench.pool._held.values() if hasattr(value.value, "control")]
    count = 0

    def hook(*_: object) -> None:
        nonlocal count
        count += 1
        if count == at_call:
            then()

    for block in held[0].value.denoiser.blocks:
        block.register_forward_pre_hook(hook)


def test_a_job_cancelled_in_company_does_not_stop_the_others(bench: Bench) -> None:
    cancel = Cancel()
    stopped, other = replace(bench.job(steps=30), cancel=cancel), bench.job(seed=5, steps=6)
    single = bench.latents(other)
    first, second = together(bench, [stopped, other])
    cancel.asked.set()
    with pytest.raises(RunCancelled):
        first.result(30)
    assert largest_difference(second.result(30).latent.samples, single) < 1e-4


def test_cancel_while_a_prompt_is_encoded(tmp_path: Path) -> None:
    folder = tiny.save_models(tmp_path)
    bench = make_bench(folder)
    bench.latents(bench.job("warm"))
    counting = After(10_000)
    bench.sampler.submit(replace(bench.job("another"), cancel=counting, steps=1)).result(30)
    cancelled = After(3)  # the questions before the encoder's first layer, and that layer
    with pytest.raises(RunCancelled):
        bench.sampler.submit(replace(bench.job("a third"), cancel=cancelled, steps=1)).result(30)
    assert cancelled.asked == 4
    assert counting.asked > 8
    assert bench.close()


@pytest.mark.parametrize("what", ["text", "model"])
def test_nan_says_where_it_came_from(tmp_path: Path, what: str) -> None:
    folder = tiny.save_models(tmp_path)
    if what == "text":
        encoder = tiny.text_encoder()
        encoder.embed_tokens.weight.data.fill_(float("nan"))
        tiny.save_text_encoder_file(folder / "text_encoders/nan.safetensors", encoder)
    bench = make_bench(folder)
    fine = bench.catalog.find(Role.TEXT_ENCODER, "qwen")
    good = replace(bench.job(), positive=Conditioning("a", fine))
    job = good
    if what == "text":
        broken = bench.catalog.find(Role.TEXT_ENCODER, "nan.safetensors")
        job = replace(job, positive=replace(job.positive, encoder=broken))
        with pytest.raises(NotFinite, match=r"encoded prompt \(nan.safetensors"):
            bench.sampler.submit(job).result(30)
    else:
        latent = bench.sampler.submit(job).result(30).latent
        wrong = replace(latent, samples=latent.samples * float("nan"))
        with pytest.raises(NotFinite, match="step 1 of 4"):
            bench.sampler.submit(replace(job, latent=wrong, denoise=0.5)).result(30)
    assert bench.latents(good).isfinite().all()
    assert bench.close()


def test_passes_are_measured_and_never_split_pairs() -> None:
    speeds = PassSpeeds()
    bench = make_bench(tiny.shared_models(), speeds=speeds)
    jobs = [bench.job(seed=i, steps=24, cfg=2.0, negative="x") for i in range(4)]
    for future in together(bench, jobs):
        assert future.result(60).latent.samples.isfinite().all()
    (kind,) = speeds.stats()
    assert kind.endswith("64x64")
    assert "ZImageTransformer2DModel" in kind
    assert set(speeds.stats()[kind]) == {"2", "4", "8"}
    assert bench.sampler.stats()["gain"] >= 1.0
    assert bench.close()


@pytest.mark.parametrize(("size", "passes"), [(64, 1), (128, 1), (256, 4)])
def test_a_lone_job_is_cut_by_a_rule_and_repeats_its_bits(
    bench: Bench, size: int, passes: int
) -> None:
    job = bench.job(size=size, batch=4, steps=2)
    found = []
    for _ in range(3):
        before = bench.sampler.stats()["forwards"]
        found.append(bench.latents(job))
        assert bench.sampler.stats()["forwards"] - before == 2 * passes
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


class LittleMemory(DevicePolicy):
    """A policy of a device that holds one estimate of these pictures, but not two."""

    def plan(self, demand: Demand) -> Plan:
        plan = super().plan(demand)
        fits = demand.work.denoise_values <= self.most
        return plan if fits else replace(plan, rung="wont-fit")

    most = 0


def test_guided_estimates_go_one_by_one_where_two_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roomy = make_bench(tiny.shared_models())
    job = roomy.job(cfg=4.0, negative="blurry")
    wanted = roomy.latents(job)
    forwards = roomy.sampler.stats()["forwards"]
    assert roomy.close()
    bench = make_bench(tiny.shared_models())
    small = LittleMemory(Settings(threads=1, profile="cpu"))
    monkeypatch.setattr(bench.modules, "_policy", small)
    parts = OpenedFiles().parts_of(job)
    family = family_of(job.model)
    values = demand_of_job(family, parts, job, rows=1).work.denoise_values
    monkeypatch.setattr(LittleMemory, "most", values)
    result = bench.sampler.submit(job).result(30)
    assert (result.latent.samples - wanted).abs().max() <= 1e-5
    assert bench.sampler.stats()["forwards"] == 2 * forwards
    reasons = result.provenance["placement"]["reasons"]
    assert any("one after the other" in reason for reason in reasons)
    monkeypatch.setattr(LittleMemory, "most", values - 1)
    with pytest.raises(DoesNotFit):
        bench.sampler.submit(job).result(30)
    assert bench.close()
