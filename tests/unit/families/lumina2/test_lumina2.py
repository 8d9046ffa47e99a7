"""Lumina 2 against its pipeline, from both layouts; long prompts; rows of different lengths."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from inline_core.sampling.values import Latent
from tests import tiny
from tests.backends.conftest import make_bench
from tests.reference import generator, last_latents
from tests.tiny_families import lumina2


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lumina")
    lumina2.save_models(folder)
    return folder


@pytest.mark.parametrize("prompt", ["a red circle", "long " * 120])
def test_the_latents_are_those_of_the_pipeline(models: Path, prompt: str) -> None:
    bench = make_bench(models)
    latent = Latent(96, 64)
    job = bench.job(prompt, family="lumina2", latent=latent, steps=4, cfg=4.0, negative="blurry")
    ours = bench.sampler.submit(job).result(30)
    assert bench.close()
    wanted = last_latents(
        lumina2.pipeline(),
        prompt=prompt,
        negative_prompt="blurry",
        width=96,
        height=64,
        num_inference_steps=4,
        guidance_scale=4.0,
        # The sampler has this as a patch of its own.
        cfg_normalization=False,
        generator=generator(),
    )
    assert wanted.std() > 0.3
    assert (ours.latent.samples - wanted).abs().max() <= 1e-4
    assert bool(ours.warnings) == (len(prompt) > 256)


def test_both_layouts_give_the_same_latents(models: Path, tmp_path: Path) -> None:
    for part in ("vae", "text_encoders"):
        (tmp_path / part).symlink_to(models / part)
    lumina2.transformer().save_pretrained(tmp_path / "diffusion_models/lumina")
    tiny.settle(tmp_path / "diffusion_models")
    found = []
    for folder in (models, tmp_path):
        bench = make_bench(folder)
        found.append(bench.latents(bench.job(family="lumina2")))
        assert bench.close()
    assert torch.equal(found[0], found[1])


def test_prompts_of_different_lengths_share_a_pass(models: Path) -> None:
    bench = make_bench(models)
    jobs = [bench.job(prompt, family="lumina2") for prompt in ("a", "a red circle on a table")]
    alone = [bench.latents(job) for job in jobs]
    together = [bench.sampler.submit(job) for job in jobs]
    for future, wanted in zip(together, alone, strict=True):
        assert (future.result(30).latent.samples - wanted).abs().max() <= 1e-5
    assert bench.close()
