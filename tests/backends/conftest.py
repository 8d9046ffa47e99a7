"""Every sampler backend behind the same fixture; a new backend is one more param."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from inline_core.devices.policy import DevicePolicy
from inline_core.devices.worker import DeviceThread
from inline_core.families.modules import ModuleSource
from inline_core.families.registry import open_catalog
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import Role
from inline_core.loading.pool import ComponentPool
from inline_core.sampling.backends.inprocess import InProcessSampler
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Conditioning, Latent
from inline_core.settings import Settings
from tests import tiny


@dataclass
class Bench:
    """A sampler with its device thread and a models folder."""

    device: DeviceThread
    catalog: Catalog
    pool: ComponentPool
    sampler: InProcessSampler

    def job(self, prompt: str = "a red circle", **changes: Any) -> SampleJob:
        model = self.catalog.find(Role.DIFFUSION_MODEL, changes.pop("model", ""), family="z-image")
        encoder = self.catalog.companions(model)[1]
        size = changes.pop("size", 64)
        negative = changes.pop("negative", None)
        values: dict[str, Any] = {
            "latent": Latent(size, size, changes.pop("batch", 1)),
            "steps": 4,
            "cfg": 1.0,
            "sampler": "euler",
            "scheduler": "simple",
            "seed": 7,
            "negative": Conditioning(negative, encoder) if negative is not None else None,
        }
        return SampleJob(model=model, positive=Conditioning(prompt, encoder), **(values | changes))

    def latents(self, job: SampleJob) -> torch.Tensor:
        samples: torch.Tensor = self.sampler.submit(job).result(30).latent.samples
        return samples


def make_bench(folder: Path, max_batch: int = 8) -> Bench:
    torch.set_num_threads(1)
    settings = Settings(models_dir=folder, demo_model=False, threads=1, profile="cpu")
    catalog = open_catalog(settings)
    policy = DevicePolicy(settings)
    pool = ComponentPool(policy.room)

    def around(loop: Any) -> None:
        torch.set_num_threads(1)
        with torch.inference_mode():
            loop()

    device = DeviceThread("device-test", around=around)
    sampler = InProcessSampler(device, ModuleSource(catalog, pool, policy), max_batch)
    return Bench(device, catalog, pool, sampler)


@pytest.fixture(params=["inprocess"])
def bench() -> Iterator[Bench]:
    made = make_bench(tiny.shared_models())
    yield made
    assert made.device.close(10)


@pytest.fixture
def strict_bench() -> Iterator[Bench]:
    """A sampler that never puts two pictures into one pass."""
    made = make_bench(tiny.shared_models(), max_batch=1)
    yield made
    assert made.device.close(10)
