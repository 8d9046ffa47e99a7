"""Measure what each accelerator gains and loses on the demo model, and print markdown tables.

`python scripts/measure_accelerators.py [cache] [attention] [compile]`; the tables stand in
docs/reference/accelerators.md.  One thread; times are ratios of runs made in turns.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from inline_core.devices.placement import Placement  # noqa: E402 - may not be installed
from inline_core.devices.policy import DevicePolicy  # noqa: E402
from inline_core.devices.worker import DeviceThread  # noqa: E402
from inline_core.families.adapted import AdaptedDenoiser, SharedDenoiser  # noqa: E402
from inline_core.families.attending import check_backend  # noqa: E402
from inline_core.families.modules import ModuleSource  # noqa: E402
from inline_core.families.registry import open_catalog  # noqa: E402
from inline_core.families.z_image.components import load_denoiser  # noqa: E402
from inline_core.families.z_image.text import EncodedPrompt  # noqa: E402
from inline_core.loading.component import Role  # noqa: E402
from inline_core.loading.files import open_weights  # noqa: E402
from inline_core.loading.identify import identify  # noqa: E402
from inline_core.loading.pool import ComponentPool  # noqa: E402
from inline_core.loading.stream import LoadPlan  # noqa: E402
from inline_core.sampling.backends.inprocess import InProcessSampler  # noqa: E402
from inline_core.sampling.job import SampleJob  # noqa: E402
from inline_core.sampling.patches import StepCache, with_patch  # noqa: E402
from inline_core.sampling.values import Conditioning, Latent  # noqa: E402
from inline_core.settings import Settings  # noqa: E402

DEMO: Final = ROOT / "inline_core" / "demo"
SIDE: Final = 128
PROMPTS: Final = (
    "a large cyan square on a white background, left",
    "a red circle on a white background, centre",
    "a small green star on a black background, right",
    "a large yellow heart on a blue background, centre",
)
STEPS: Final = (8, 20, 30)
THRESHOLDS: Final = (0.05, 0.1, 0.2, 0.4)
BACKENDS: Final = ("native", "_native_flash", "_native_math", "flex")


def around(loop: Callable[[], None]) -> None:
    """One thread, and no gradients, as the server has it."""
    torch.set_num_threads(1)
    with torch.inference_mode():
        loop()


class Studio:
    """A sampler with the demo model."""

    def __init__(self) -> None:
        settings = Settings(models_dir=DEMO, demo_model=False, threads=1, profile="cpu")
        self.catalog = open_catalog(settings)
        policy = DevicePolicy(settings)
        self.device = DeviceThread("device", around=around)
        self.modules = ModuleSource(self.catalog, ComponentPool(policy.room), policy)
        self.sampler = InProcessSampler(self.device, self.modules, 1)
        self.model = self.catalog.find(Role.DIFFUSION_MODEL, "", family="z-image")
        self.vae, self.encoder = self.catalog.companions(self.model)

    def job(self, prompt: str, steps: int, threshold: float = 0.0) -> SampleJob:
        """With the guidance that is the demo's default."""
        model = with_patch(self.model, StepCache(threshold)) if threshold else self.model
        words = Conditioning(prompt, self.encoder)
        nothing = Conditioning("", self.encoder)
        latent = Latent(SIDE, SIDE)
        job = SampleJob(model, words, latent, steps, 2.0, "euler", "simple", 7)
        return replace(job, negative=nothing)

    def timed(self, job: SampleJob) -> tuple[float, Tensor, dict[str, Any]]:
        """Seconds, latents, provenance."""
        started = time.perf_counter()
        result = self.sampler.submit(job).result(300)
        return time.perf_counter() - started, result.latent.samples, dict(result.provenance)

    def pixels(self, latents: Tensor) -> Tensor:
        """Decoded, 0..255."""
        height, width = (8 * side for side in latents.shape[-2:])
        decode = lambda: self.modules.autoencoders.decode(  # noqa: E731
            self.vae, Latent(width, height), latents, lambda: None, tiled=False
        )
        return torch.from_numpy(self.device.call(decode).result()[0]).double()


def psnr(ours: Tensor, exact: Tensor) -> float:
    """In decibels; infinite for equal pictures."""
    error = float(((ours - exact) ** 2).mean())
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)


def _decibels(found: Sequence[float]) -> str:
    """Mean and worst of the pictures that changed, in words."""
    changed = [value for value in found if math.isfinite(value)]
    if not changed:
        return "equal"
    return f"{statistics.mean(changed):.1f} dB ({min(changed):.1f})"


def step_cache() -> None:
    """Error, decibels, share of block rows left out and time, against the exact run."""
    studio = Studio()
    blocks = studio.catalog.identity(studio.model).geometry["n_layers"]
    print("| steps | threshold | error of latents | PSNR, mean (worst) | left out | time |")
    print("|---|---|---|---|---|---|")
    for steps in STEPS:
        for prompt in PROMPTS:
            studio.timed(studio.job(prompt, steps))
        for threshold in THRESHOLDS:
            errors, decibels, reused, ratios = [], [], [], []
            for number, prompt in enumerate(PROMPTS * 2):
                pair = [studio.job(prompt, steps), studio.job(prompt, steps, threshold)]
                pair = [replace(job, seed=number) for job in pair]
                runs = [studio.timed(job) for job in (pair if number % 2 else pair[::-1])]
                exact, ours = runs if number % 2 else runs[::-1]
                ratios.append(ours[0] / exact[0])
                errors.append(float((ours[1] - exact[1]).norm() / exact[1].norm()))
                decibels.append(psnr(studio.pixels(ours[1]), studio.pixels(exact[1])))
                passes = ours[2]["stepCache"]["reusedPasses"]
                reused.append(passes * (blocks - 1) / (2 * steps * blocks))
            print(
                f"| {steps} | {threshold} | {statistics.mean(errors):.4f} "
                f"| {_decibels(decibels)} "
                f"| {statistics.mean(reused):.0%} | {statistics.median(ratios):.2f} |",
                flush=True,
            )
    studio.device.close(10)


@dataclass
class Forward:
    """One forward pass of the demo model: two rows, as with guidance."""

    shared: SharedDenoiser
    side: int

    def __call__(self) -> Tensor:
        """The estimate."""
        generator = torch.Generator().manual_seed(0)
        latents = torch.randn(2, 16, self.side // 8, self.side // 8, generator=generator)
        prompts = [EncodedPrompt(torch.randn(n, 128, generator=generator)) for n in (12, 5)]
        denoiser = AdaptedDenoiser(self.shared, ())
        return denoiser.predict(latents, torch.tensor([0.5, 0.5]), prompts)


def loaded(attention: str = "native", *, compiled: bool = False) -> SharedDenoiser:
    """The demo's network, wrapped as the server does it."""
    path = next((DEMO / "diffusion_models").glob("*.safetensors"))
    files = open_weights(path)
    placement = Placement("cpu", "float32", attention=attention)
    plan = LoadPlan(files, identify(files.headers), placement, path.name, lambda: None)
    return SharedDenoiser.around(load_denoiser(plan), attention, compiled=compiled)


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ratio(ours: Callable[[], object], exact: Callable[[], object], rounds: int = 30) -> float:
    """Median of time ratios, both measured in turns."""
    found = []
    for number in range(rounds):
        if number % 2:
            found.append(seconds(ours) / seconds(exact))
        else:
            found.append(1 / (seconds(exact) / seconds(ours)))
    return statistics.median(found)


def attention() -> None:
    """Largest difference and time of each backend against native."""
    print("| backend | pixels | largest difference | time | first call |")
    print("|---|---|---|---|---|")
    for name in BACKENDS:
        started = time.perf_counter()
        check_backend(name, "cpu", "float32")
        checked = time.perf_counter() - started
        for side in (128, 256):
            ours, exact = Forward(loaded(name), side), Forward(loaded(), side)
            expected, first = exact(), seconds(ours)
            difference = float((ours() - expected).abs().max())
            print(
                f"| `{name}` | {side} | {difference:.1g} | {ratio(ours, exact):.2f} "
                f"| {checked + first:.2f} s |",
                flush=True,
            )
            checked = 0.0


def compiled() -> None:
    """First call with nothing cached, a second size, then the time against plain blocks."""
    print("| pixels | largest difference | first call | time |")
    print("|---|---|---|---|")
    code = loaded(compiled=True)
    for side in (128, 256):
        ours, exact = Forward(code, side), Forward(loaded(), side)
        expected, first = exact(), seconds(ours)
        difference = float((ours() - expected).abs().max())
        print(
            f"| {side} | {difference:.1g} | {first:.1f} s | {ratio(ours, exact):.2f} |", flush=True
        )
    for note in code.notes:
        print(note)


def main(wanted: Sequence[str]) -> None:
    """Measure what is asked for, or all."""
    torch.set_num_threads(1)
    parts = {"cache": step_cache, "attention": attention, "compile": compiled}
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder  # nothing of an earlier run is reused
        for name in wanted or parts:
            print(f"\n{name}\n", flush=True)
            parts[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
