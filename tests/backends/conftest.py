"""Every sampler backend behind the same fixture; a new backend is one more param."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inline_core.devices.budget import Demand, Weights
from inline_core.devices.ladder import Plan
from inline_core.devices.placement import Dtype, Placement
from inline_core.devices.policy import DevicePolicy
from inline_core.devices.split import Split
from inline_core.devices.worker import DeviceThread
from inline_core.engine.ranks.link import versions
from inline_core.errors import Unavailable
from inline_core.families.modules import ModuleSource
from inline_core.families.registry import open_catalog
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.pool import ComponentPool
from inline_core.sampling import latent_tensors
from inline_core.sampling.backends.inprocess import InProcessSampler
from inline_core.sampling.backends.parallel.group import GroupPlan
from inline_core.sampling.backends.parallel.sampler import GroupSampler
from inline_core.sampling.job import SampleJob, SampleResult
from inline_core.sampling.speeds import PassSpeeds
from inline_core.sampling.values import Conditioning, Latent
from inline_core.settings import Settings
from tests import tiny

# Of one job, and of the first one of a group, which takes its time to start.
WAIT_S = 90
GROUP_TIMEOUT = pytest.mark.timeout(WAIT_S + 30)
SPLIT = Split("xdit", ulysses=2)


class FixedPrecision(DevicePolicy):
    """A policy that computes in one precision, whatever the machine would pick."""

    def __init__(self, settings: Settings, dtype: Dtype) -> None:
        super().__init__(settings)
        self._dtype = dtype

    def plan(self, demand: Demand) -> Plan:
        plan = super().plan(demand)
        encoder = plan.text_encoder
        return replace(
            plan,
            model=replace(plan.model, dtype=self._dtype),
            text_encoder=None if encoder is None else replace(encoder, dtype=self._dtype),
        )

    def place_vae(self, weights: Weights) -> Placement:
        return replace(super().place_vae(weights), dtype=self._dtype)


@dataclass
class Bench:
    """A sampler with its device thread and a models folder."""

    device: DeviceThread
    lane: DeviceThread | None
    catalog: Catalog
    pool: ComponentPool
    modules: ModuleSource
    sampler: InProcessSampler
    is_group: bool = False

    def job(self, prompt: str = "a red circle", **changes: Any) -> SampleJob:
        family = changes.pop("family", "z-image")
        model = self.catalog.find(Role.DIFFUSION_MODEL, changes.pop("model", ""), family=family)
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
        samples: torch.Tensor = self.sampler.submit(job).result(WAIT_S).latent.samples
        return samples

    def close(self) -> bool:
        lane_ended = self.lane is None or self.lane.close(10)
        return self.device.close(10) and lane_ended


class BenchNodes:
    """What the frames of a video ask of a node's context, of a bench without a server."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.render, self.warned = bench, self, list[str]()

    def warn(self, message: str) -> None:
        self.warned.append(message)

    def encode_pixels(self, vae: ComponentRef, pixels: Any, _: Any) -> Latent:
        found = self.bench.device.call(
            lambda: self.bench.modules.autoencoders.encode(vae, pixels, lambda: None, tiled=False)
        ).result(60)
        height, width = pixels.shape[-3:-1]
        return Latent(width, height, samples=found.samples, space=found.space)

    def on_latents(self, change: str, _: Any, *values: Any) -> Any:
        return getattr(latent_tensors, change)(*values)


def make_bench(
    folder: Path,
    max_batch: int = 8,
    *,
    lane: bool = False,
    dtype: Dtype | None = None,
    speeds: PassSpeeds | None = None,
) -> Bench:
    torch.set_num_threads(1)
    settings = Settings(models_dir=folder, demo_model=False, threads=1, profile="cpu")
    catalog = open_catalog(settings)
    policy = DevicePolicy(settings) if dtype is None else FixedPrecision(settings, dtype)
    pool = ComponentPool(policy.room)

    def around(loop: Any) -> None:
        torch.set_num_threads(1)
        with torch.inference_mode():
            loop()

    device = DeviceThread("device-test", around=around)
    aside = DeviceThread("lane-test", around=around) if lane else None
    modules = ModuleSource(catalog, pool, policy)
    sampler = InProcessSampler(device, modules, max_batch, lane=aside, speeds=speeds)
    return Bench(device, aside, catalog, pool, modules, sampler)


GROUP = pytest.param("group", marks=[pytest.mark.xdist_group("processes"), GROUP_TIMEOUT])


@pytest.fixture(params=["inprocess", "inprocess-lane"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from open_bench(request)


def open_bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The sampler that a fixture asks for by its param."""
    if request.param == "group":
        yield request.getfixturevalue("group_bench")
        return
    made = make_bench(tiny.shared_models(), lane=request.param == "inprocess-lane")
    yield made
    assert made.close()


class SplitSampler:
    """Every job split over a group; the counts are those of its leading rank."""

    def __init__(self, settings: Settings) -> None:
        self.group = GroupSampler(settings, lambda _: GroupPlan(SPLIT.world), versions())

    def submit(self, job: SampleJob) -> Future[SampleResult]:
        return self.group.submit(replace(job, split=SPLIT))

    def stats(self) -> dict[str, Any]:
        stats = self.group.stats()
        return {"forwards": 0, "active": stats["active"], **stats["sampler"]}

    def fail_all(self, error: BaseException) -> None:
        self.group.fail_all(error)


class PoolOfLeader:
    """What the leading rank holds, as far as it was told."""

    def __init__(self, sampler: SplitSampler) -> None:
        self._sampler = sampler

    def stats(self) -> dict[str, Any]:
        return {"misses": 0, "held": [], **self._sampler.group.stats()["pool"]}


@pytest.fixture(scope="module")
def group_bench() -> Iterator[Bench]:
    """One group of two ranks for all tests of a module."""
    made = make_bench(tiny.shared_models())
    settings = Settings(models_dir=tiny.shared_models(), demo_model=False, threads=1, profile="cpu")
    sampler = SplitSampler(settings)
    made.sampler, made.pool = sampler, PoolOfLeader(sampler)  # type: ignore[assignment]
    made.is_group = True
    yield made
    sampler.fail_all(Unavailable("the tests are over"))
    assert made.close()


@pytest.fixture
def strict_bench() -> Iterator[Bench]:
    """A sampler that never puts two pictures into one pass."""
    made = make_bench(tiny.shared_models(), max_batch=1)
    yield made
    assert made.close()
