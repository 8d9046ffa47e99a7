"""Chroma against its pipeline, from both layouts; long prompts; rows of different lengths."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from inline_core.devices.placement import Dtype
from inline_core.sampling.values import Latent
from tests import tiny, tiny_encoders
from tests.backends.conftest import make_bench
from tests.reference import generator, last_latents
from tests.tiny_families import chroma


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chroma")
    chroma.save_models(folder)
    return folder


@pytest.mark.parametrize("prompt", ["a red circle", "b " * 600])
def test_the_latents_are_those_of_the_pipeline(models: Path, prompt: str) -> None:
    bench = make_bench(models)
    job = bench.job(
        prompt, family="chroma", latent=Latent(96, 64), steps=4, cfg=3.0, negative="blurry"
    )
    ours = bench.sampler.submit(job).result(30)
    assert bench.close()
    pipe = chroma.pipeline()
    wanted = last_latents(
        pipe,
        prompt=prompt,
        negative_prompt="blurry",
        width=96,
        height=64,
        num_inference_steps=4,
        guidance_scale=3.0,
        generator=generator(),
    )
    unpacked = pipe._unpack_latents(wanted, 64, 96, 8)
    assert unpacked.std() > 0.3
    assert (ours.latent.samples - unpacked).abs().max() <= 1e-4
    assert bool(ours.warnings) == (len(prompt) > 512)


def test_both_layouts_give_the_same_latents(models: Path, tmp_path: Path) -> None:
    (tmp_path / "vae").symlink_to(models / "vae")
    chroma.transformer().save_pretrained(tmp_path / "diffusion_models/chroma")
    words = tiny_encoders.t5_tokenizer()
    tiny_encoders.save_folder(tmp_path / "text_encoders/t5", chroma.t5(), words)
    tiny.settle(tmp_path / "diffusion_models")
    found = []
    for folder in (models, tmp_path):
        bench = make_bench(folder)
        found.append(bench.latents(bench.job(family="chroma")))
        assert bench.close()
    assert (found[0] - found[1]).abs().max() <= 1e-5


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_prompts_of_different_lengths_share_a_pass(models: Path, dtype: Dtype) -> None:
    bench = make_bench(models, dtype=dtype)
    jobs = [bench.job(prompt, family="chroma") for prompt in ("a", "a red circle on a table")]
    alone = [bench.latents(job) for job in jobs]
    together = [bench.sampler.submit(job) for job in jobs]
    close = 1e-5 if dtype == "float32" else 0.05
    for future, wanted in zip(together, alone, strict=True):
        found = future.result(30).latent.samples
        assert torch.isfinite(found).all()
        assert (found - wanted).abs().max() <= close
    assert bench.sampler.stats()["largestBatch"] == 2
    assert bench.close()
