"""The refiner of SDXL goes on where its base left off, as diffusers' pipeline does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from inline_core.loading.component import Role
from inline_core.sampling.sigmas.tables import EpsTable
from inline_core.sampling.values import Latent
from tests.backends.conftest import Bench, make_bench
from tests.reference import last_latents
from tests.tiny_families import sdxl_refiner
from tests.unit.families.sd.conftest import job


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("refiner")
    sdxl_refiner.save_models(folder)
    made = make_bench(folder)
    yield made
    assert made.close()


def test_it_is_told_apart_and_finds_its_parts(bench: Bench) -> None:
    model = bench.catalog.find(Role.CHECKPOINT, "refiner.safetensors")
    assert model.family == "sdxl-refiner"
    vae, encoder = bench.catalog.companions(model)
    assert (vae.part, encoder.part) == ("first_stage_model.", "conditioner.embedders.0.model.")


def test_the_latents_are_those_of_the_pipeline(bench: Bench) -> None:
    pipe = sdxl_refiner.pipeline()
    noise = torch.randn((1, 4, 8, 12), generator=torch.Generator().manual_seed(3))
    sigma = float(EpsTable()[249])  # of trailing steps the second half of four starts there
    noisy = noise * (1 + sigma**2) ** 0.5
    wanted = last_latents(
        pipe,
        prompt="a red circle",
        negative_prompt="blurry",
        image=noisy,
        num_inference_steps=4,
        denoising_start=0.75,
        guidance_scale=2.0,
    )
    latent = Latent(96, 64, samples=noisy, space="sdxl")
    rest: dict[str, Any] = {"latent": latent, "start_step": 3, "add_noise": False}
    found = bench.latents(job(bench, sdxl_refiner, **rest))
    assert (found - wanted).abs().max() <= 1e-4
    assert (found - noisy).abs().max() > 0.05
    plain = bench.latents(job(bench, sdxl_refiner, "a blue square", **rest))
    assert (plain - wanted).abs().max() > 1e-3
