"""Krea 2 against its pipeline: latents, pixels, both variants, both layouts, long prompts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inline_core.loading.component import Role
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Latent
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.reference import generator, last_latents
from tests.tiny_families import krea2


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("krea")
    krea2.save_models(folder)
    return folder


def job(bench: Bench, variant: str, cfg: float, prompt: str = "a red circle") -> SampleJob:
    latent = Latent(96, 64)
    made = bench.job(prompt, family="krea-2", latent=latent, cfg=cfg, negative="blurry")
    return replace(made, model=replace(made.model, variant=variant))


@pytest.mark.parametrize(
    ("variant", "guidance", "prompt"),
    [("turbo", 0.0, "a red circle"), ("raw", 4.5, "a red circle"), ("turbo", 0.0, "long " * 120)],
)
def test_latents_and_pixels_are_those_of_the_pipeline(
    models: Path, variant: str, guidance: float, prompt: str
) -> None:
    bench = make_bench(models)
    ours = bench.sampler.submit(job(bench, variant, 1 + guidance, prompt)).result(30)
    call = {
        "prompt": prompt,
        "negative_prompt": "blurry",
        "width": 96,
        "height": 64,
        "num_inference_steps": 4,
        "guidance_scale": guidance,
    }
    pipe = krea2.pipeline(distilled=variant == "turbo")
    wanted = last_latents(pipe, **call, generator=generator())
    unpacked = pipe._unpack_latents(wanted, 64, 96)
    assert unpacked.std() > 0.3
    assert (ours.latent.samples - unpacked).abs().max() <= 1e-4
    assert bool(ours.warnings) == (len(prompt) > 500)
    vae = bench.catalog.find(Role.VAE, "", family="krea-2")
    pixels = bench.device.call(
        lambda: bench.modules.autoencoders.decode(
            vae, ours.latent, ours.latent.samples, lambda: None, tiled=False
        )
    ).result(30)[0]
    theirs = np.asarray(pipe(**call, generator=generator()).images[0]).astype(int)
    assert theirs.std() > 10
    assert np.abs(pixels.astype(int) - theirs).max() <= 1
    assert bench.close()


def test_every_layout_gives_the_same_latents(models: Path, tmp_path: Path) -> None:
    krea2.transformer().save_pretrained(tmp_path / "diffusion_models/krea")
    krea2.vae().save_pretrained(tmp_path / "vae/qwen")
    krea2.text_encoder().save_pretrained(tmp_path / "text_encoders/qwen")
    tiny.tokenizer().save_pretrained(tmp_path / "text_encoders/qwen")
    tiny.settle(tmp_path)
    found = []
    for folder in (models, tmp_path):
        bench = make_bench(folder)
        found.append(bench.latents(job(bench, "turbo", 1.0)))
        assert bench.close()
    assert (found[0] - found[1]).abs().max() <= 1e-5


def test_prompts_of_different_lengths_share_a_pass(models: Path) -> None:
    bench = make_bench(models)
    jobs = [job(bench, "turbo", 1.0, prompt) for prompt in ("a", "a red circle on a table")]
    alone = [bench.latents(one) for one in jobs]
    together = [bench.sampler.submit(one) for one in jobs]
    for future, wanted in zip(together, alone, strict=True):
        assert (future.result(30).latent.samples - wanted).abs().max() <= 1e-5
    assert bench.close()
