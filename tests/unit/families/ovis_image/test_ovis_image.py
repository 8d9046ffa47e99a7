"""Ovis-Image, which lives in one folder, against its pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from inline_core.sampling.values import Latent
from tests.backends.conftest import make_bench
from tests.reference import generator, last_latents
from tests.tiny_families import ovis_image


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ovis")
    ovis_image.save_models(folder)
    return folder


@pytest.mark.parametrize("prompt", ["a red circle", "long " * 120])
def test_the_latents_are_those_of_the_pipeline(models: Path, prompt: str) -> None:
    bench = make_bench(models)
    latent = Latent(96, 64)
    job = bench.job(prompt, family="ovis-image", latent=latent, cfg=5.0, negative="blurry")
    ours = bench.sampler.submit(job).result(30)
    assert bench.close()
    pipe = ovis_image.pipeline()
    wanted = last_latents(
        pipe,
        prompt=prompt,
        negative_prompt="blurry",
        width=96,
        height=64,
        num_inference_steps=4,
        guidance_scale=5.0,
        generator=generator(),
    )
    wanted = pipe._unpack_latents(wanted, 64, 96, 8)
    assert wanted.std() > 0.3
    assert (ours.latent.samples - wanted).abs().max() <= 1e-4
    assert bool(ours.warnings) == (len(prompt) > 256)
