"""A whole render with its models folder, as the server has it, for sections d, e and f."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from device_check.bench import Bench
from inline_core.devices.policy import DevicePolicy
from inline_core.devices.release import give_back
from inline_core.devices.worker import DeviceThread
from inline_core.engine.render import TorchRender
from inline_core.families.modules import ModuleSource
from inline_core.families.registry import open_catalog
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import Role
from inline_core.loading.pool import ComponentPool
from inline_core.sampling.backends.inprocess import InProcessSampler
from inline_core.sampling.job import SampleJob, SampleResult
from inline_core.sampling.values import Conditioning, Latent
from inline_core.settings import Settings

WAIT_S: Final = 120.0


def settings_for(bench: Bench, **changes: Any) -> Settings:
    """The settings of a server that offers only the files of this run."""
    profile = "gpu-max" if bench.device.is_cuda else "cpu"
    values: dict[str, Any] = {
        "models_dir": bench.files.folder,
        "extra_models_dirs": [],
        "demo_model": False,
        "profile": profile,
        "threads": 0 if bench.device.is_cuda else 1,
        "vram_budget": None,
        "max_batch": max(bench.batches),
    }
    return Settings(**(values | changes))


def job_for(catalog: Catalog, side: int, model: str = "a.safetensors", **changes: Any) -> SampleJob:
    """A picture with a fixed prompt and seed."""
    found = catalog.find(Role.DIFFUSION_MODEL, model, family="z-image")
    encoder = catalog.companions(found)[1]
    values: dict[str, Any] = {
        "latent": Latent(side, side),
        "steps": 3,
        "cfg": 1.0,
        "sampler": "euler",
        "scheduler": "simple",
        "seed": 7,
    }
    prompt = Conditioning(changes.pop("prompt", "a red circle on a white background"), encoder)
    return SampleJob(model=found, positive=prompt, **(values | changes))


def digest(values: Any) -> str:
    """A short hash of an array or a tensor."""
    array = values.numpy() if isinstance(values, Tensor) else values
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


@dataclass(slots=True)
class QuietContext:
    """Stands in for a node's context: keeps warnings, ignores progress."""

    run_id: str = "gpu-check"
    node_id: str = "n"
    priority: int = 0
    render: Any = None
    components: Any = None
    media: Any = None
    warnings: list[str] = field(default_factory=list)

    def check_cancelled(self) -> None:
        """Nobody cancels."""

    def progress(self, *_: Any, **__: Any) -> None:
        """Nobody watches."""

    def preview(self, encode: Callable[[], bytes]) -> None:
        """Nobody watches."""

    def warn(self, message: str) -> None:
        """Keep it."""
        self.warnings.append(message)

    def describe(self, **_: object) -> None:
        """Nothing is kept."""


@dataclass(frozen=True, slots=True)
class Studio:
    """A sampler on its device thread."""

    device: DeviceThread
    catalog: Catalog
    modules: ModuleSource
    sampler: InProcessSampler

    def run(self, jobs: Sequence[SampleJob]) -> list[SampleResult]:
        """Submit all at the same step border, so that they really are one batch."""
        submit = self.device.call(lambda: [self.sampler.submit(job) for job in jobs])
        return [future.result(WAIT_S) for future in submit.result(WAIT_S)]

    def latents(self, job: SampleJob, others: Sequence[SampleJob] = ()) -> Tensor:
        """The result of a job, stepped together with others: (pictures, c, h, w) float32."""
        samples: Tensor = self.run([job, *others])[0].latent.samples
        return samples


@contextmanager
def studio(bench: Bench) -> Iterator[Studio]:
    """A sampler with real models, closed in the end."""
    settings = settings_for(bench)
    policy = DevicePolicy(settings, bench.device.machine)
    catalog = open_catalog(settings)
    pool = ComponentPool(policy.room, after_drop=give_back)

    def around(loop: Callable[[], None]) -> None:
        if not bench.device.is_cuda:
            torch.set_num_threads(1)
        with torch.inference_mode():
            loop()

    device = DeviceThread("gpu-check", around=around)
    modules = ModuleSource(catalog, pool, policy)
    made = Studio(device, catalog, modules, InProcessSampler(device, modules, settings.max_batch))
    try:
        yield made
    finally:
        device.call(modules.free).result(WAIT_S)
        device.close(30)
        bench.device.clean()


@contextmanager
def render(bench: Bench, **changes: Any) -> Iterator[tuple[TorchRender, Catalog]]:
    """The render of a server with some settings, closed in the end."""
    settings = settings_for(bench, **changes)
    catalog = open_catalog(settings)
    made = TorchRender(settings, catalog, DevicePolicy(settings, bench.device.machine))
    try:
        yield made, catalog
    finally:
        made.free()
        made.close(30)
        bench.device.clean()
