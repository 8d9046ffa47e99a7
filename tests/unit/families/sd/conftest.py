"""Folders and jobs of Stable Diffusion that the tests share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from inline_core.sampling.sigmas.tables import EpsTable
from inline_core.sampling.values import Latent
from tests.backends.conftest import Bench, make_bench
from tests.reference import generator, last_latents
from tests.tiny_families import sd15, sdxl

Benches = Callable[[ModuleType], Bench]


@pytest.fixture(scope="package")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for module in (sd15, sdxl):
        made[module.NAME] = tmp_path_factory.mktemp(module.NAME)
        module.save_models(made[module.NAME])
    return made


@pytest.fixture(scope="package")
def benches(folders: dict[str, Path]) -> Iterator[Benches]:
    made: dict[str, Bench] = {}

    def bench_of(module: ModuleType) -> Bench:
        if module.NAME not in made:
            made[module.NAME] = make_bench(folders[module.NAME])
        return made[module.NAME]

    yield bench_of
    for bench in made.values():
        assert bench.close()


def job(bench: Bench, module: ModuleType, prompt: str = "a red circle", **changes: Any) -> Any:
    values = {"latent": Latent(96, 64), "cfg": 2.0, "negative": "blurry", **changes}
    return bench.job(prompt, family=module.NAME, **values)


def reference(pipe: Any, prompt: str = "a red circle", **changes: Any) -> torch.Tensor:
    """The pipeline's latents; its noise is scaled as the sampler starts with it."""
    largest = EpsTable(zero_snr=bool(pipe.scheduler.config.rescale_betas_zero_snr)).largest
    noise = torch.randn((1, 4, 8, 12), generator=generator())
    start = noise * math.sqrt(1 + largest**2) / float(pipe.scheduler.init_noise_sigma)
    call = {
        "prompt": prompt,
        "negative_prompt": "blurry",
        "width": 96,
        "height": 64,
        "num_inference_steps": 4,
        "guidance_scale": 2.0,
        "latents": start,
        "generator": generator(),
    }
    return last_latents(pipe, **{**call, **changes})
