"""Ideogram 4 against its pipeline, which guides with a second model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.ideogram4 import pipeline_ideogram4 as theirs

from inline_core.errors import InvalidParam
from inline_core.families.ideogram4.denoise import packed, unpacked
from inline_core.families.ideogram4.family import IDEOGRAM_4
from inline_core.families.ideogram4.keys import TABLE
from inline_core.loading.component import ComponentRef, Role
from inline_core.nodes.patches import guided_by, pair
from inline_core.sampling.family import ScheduleFor
from inline_core.sampling.patches import GuidanceInterval, with_patch
from inline_core.sampling.sigmas.logit_normal import ideogram4 as ideogram4_sigmas
from inline_core.sampling.sigmas.schedules import sigmas_for
from inline_core.sampling.values import Latent
from tests.backends.conftest import Bench, make_bench
from tests.reference import generator, last_latents
from tests.tiny_families import ideogram4

_FAMILY = "ideogram-4"
_WIDTH, _HEIGHT, _STEPS = 96, 64, 4
# The pipeline calls layers of the text encoder by an older name of an argument.
pytestmark = pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ideogram4")
    ideogram4.save_models(folder)
    return folder


def both(bench: Bench) -> ComponentRef:
    names = ("ideogram.safetensors", "unconditional.safetensors")
    found = [bench.catalog.find(Role.DIFFUSION_MODEL, name, family=_FAMILY) for name in names]
    guided: ComponentRef = guided_by(*found)
    return guided


def theirs_on(pipe: Any, prompt: str, **guidance: Any) -> torch.Tensor:
    """The pipeline's latents, in the shape of ours.

    It starts from noise of full strength at a sigma a hair below 1, where this much is noise.
    """
    sigma = IDEOGRAM_4.table(ScheduleFor(steps=_STEPS)).largest
    noise = torch.randn((1, 128, _HEIGHT // 16, _WIDTH // 16), generator=generator())
    latents = last_latents(
        pipe,
        prompt=prompt,
        width=_WIDTH,
        height=_HEIGHT,
        num_inference_steps=_STEPS,
        latents=packed(noise * sigma),
        max_sequence_length=160,
        **guidance,
    )
    return unpacked(latents, _HEIGHT // 16, _WIDTH // 16)


@pytest.mark.parametrize("prompt", ["a red circle", '{"high_level_description": "a dog"}', ""])
def test_the_latents_are_those_of_the_pipeline(models: Path, prompt: str) -> None:
    bench = make_bench(models)
    job = bench.job(prompt, family=_FAMILY, latent=Latent(_WIDTH, _HEIGHT), cfg=7.0)
    ours = bench.latents(replace(job, model=both(bench)))
    assert bench.close()
    pipe = ideogram4.pipeline()
    wanted = theirs_on(pipe, prompt, guidance_scale=7.0, guidance_schedule=None)
    assert wanted.std() > 0.3
    assert (ours - wanted).abs().max() <= 1e-4


def test_another_scale_at_the_end_is_that_of_the_pipeline(models: Path) -> None:
    bench = make_bench(models)
    job = bench.job("a red circle", family=_FAMILY, latent=Latent(_WIDTH, _HEIGHT), cfg=7.0)
    model = with_patch(both(bench), GuidanceInterval(3.0, 0.7, 1.0))
    ours = bench.latents(replace(job, model=model))
    assert bench.close()
    pipe = ideogram4.pipeline()
    wanted = theirs_on(pipe, "a red circle", guidance_scale=None, guidance_schedule=[7, 7, 7, 3])
    assert (ours - wanted).abs().max() <= 1e-4


def test_without_guidance_the_second_model_is_not_asked(models: Path) -> None:
    bench = make_bench(models)
    job = bench.job("a red circle", family=_FAMILY)
    alone = bench.latents(job)
    paired = bench.latents(replace(job, model=both(bench)))
    guided = bench.latents(replace(job, cfg=3.0))
    by_other = bench.latents(replace(job, model=both(bench), cfg=3.0))
    assert bench.close()
    assert torch.equal(alone, paired)
    assert (guided - alone).abs().max() > 0.01
    assert (guided - by_other).abs().max() > 0.01


def test_jobs_of_other_lengths_share_a_pass(models: Path) -> None:
    bench = make_bench(models)
    jobs = [
        replace(bench.job(prompt, family=_FAMILY, cfg=2.0), model=both(bench))
        for prompt in ("a dog", "some more cats")
    ]
    alone = [bench.latents(job) for job in jobs]
    futures = [bench.sampler.submit(job) for job in jobs]
    together = [future.result(30).latent.samples for future in futures]
    assert bench.close()
    for one, other in zip(alone, together, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_a_pair_of_experts_cannot_be_guided_by_a_third_model(models: Path) -> None:
    bench = make_bench(models)
    guided = both(bench)
    other = guided.others[0]
    assert bench.close()
    with pytest.raises(InvalidParam, match="works together with unconditional"):
        pair(guided, other)
    with pytest.raises(InvalidParam, match="different families"):
        guided_by(guided, replace(other, family="flux-2"))
    assert guided_by(guided, other) == guided


@pytest.mark.parametrize("steps", [1, 12, 20, 48])
@pytest.mark.parametrize("size", [(256, 256), (1152, 2048)])
def test_the_sigmas_are_those_of_the_pipeline(steps: int, size: tuple[int, int]) -> None:
    width, height = size
    mu = theirs._resolution_aware_mu(height, width, 0.5)
    wanted = [*theirs._logit_normal_sigmas(steps, mu, 1.75).tolist(), 0.0]
    ours = ideogram4_sigmas(steps, width, height, 0.5, 1.75)
    assert max(abs(a - b) for a, b in zip(ours, wanted, strict=True)) <= 1e-6
    table = IDEOGRAM_4.table(ScheduleFor("", width, height, steps))
    mu = theirs._resolution_aware_mu(height, width, 0.0)
    wanted = [*theirs._logit_normal_sigmas(steps, mu, 1.5).tolist(), 0.0]
    simple = sigmas_for("simple", steps, table)
    assert max(abs(a - b) for a, b in zip(simple, wanted, strict=True)) <= 1e-6
    middle = table.sigma_at(0.5)
    assert table.sigma(table.timestep(middle)) == pytest.approx(middle)
    assert (table.sigma_at(1), table.sigma_at(0)) == (0.0, table.largest)


@pytest.mark.parametrize(("steps", "std", "name"), [(0, 1.0, "steps"), (4, 0.0, "std")])
def test_sigmas_that_cannot_be_made_are_refused(steps: int, std: float, name: str) -> None:
    with pytest.raises(InvalidParam, match=name):
        ideogram4_sigmas(steps, 512, 512, 0.0, std)


def test_adapters_find_the_parts_of_the_fused_matrix() -> None:
    block = "layers.0.attention"
    parts = [f"{block}.to_{name}.weight" for name in "qkv"]
    targets = TABLE.adapter_targets([*parts, f"{block}.to_out.0.weight"])
    assert [target.parameter for target in targets[f"{block}.qkv"]] == parts
    assert targets[f"{block}.o"][0].parameter == f"{block}.to_out.0.weight"
