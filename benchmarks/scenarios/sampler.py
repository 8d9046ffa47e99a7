"""The sampler on the bundled model: what a lone job pays, what sharing passes gains."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Result, alternate
from inline_core.graph.ports import PortKind
from inline_core.media.values import Image
from inline_core.nodes.base import NodeContext, Port, node, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inline_core.sampling.job import SampleJob

STEPS = 8


class _Bench:
    """A sampler with the bundled model, and a bare loop over the same network."""

    def __init__(self, *, max_batch: int, calibrated: bool) -> None:
        import torch

        from inline_core.devices.policy import DevicePolicy
        from inline_core.devices.worker import DeviceThread
        from inline_core.families.modules import ModuleSource
        from inline_core.families.registry import open_catalog
        from inline_core.loading.pool import ComponentPool
        from inline_core.sampling.backends.inprocess import InProcessSampler
        from inline_core.sampling.speeds import PassSpeeds
        from inline_core.settings import Settings

        settings = Settings(models_dir=Path("/nonexistent"), profile="cpu", threads=1)
        policy = DevicePolicy(settings)
        self.catalog = open_catalog(settings)
        pool = ComponentPool(policy.room)

        def around(loop: Callable[[], None]) -> None:
            torch.set_num_threads(1)
            with torch.inference_mode():
                loop()

        self.device = DeviceThread("device-bench", around=around)
        self.modules = ModuleSource(self.catalog, pool, policy)
        speeds = PassSpeeds() if calibrated else None
        self.sampler = InProcessSampler(self.device, self.modules, max_batch, speeds=speeds)

    def job(self, side: int, seed: int) -> SampleJob:
        from inline_core.loading.component import Role
        from inline_core.sampling.job import SampleJob
        from inline_core.sampling.values import Conditioning, Latent

        model = self.catalog.find(Role.DIFFUSION_MODEL, "", family="z-image")
        encoder = self.catalog.companions(model)[1]
        prompt = Conditioning("a red circle on a white background, centre", encoder)
        return SampleJob(model, prompt, Latent(side, side), STEPS, 1.0, "euler", "simple", seed)

    def seconds(self, jobs: Sequence[SampleJob]) -> float:
        """Wall time until all jobs are done; they wait together before the first step."""
        gate, started = threading.Event(), threading.Event()

        def block() -> None:
            started.set()
            gate.wait(60)

        self.device.call(block)
        started.wait(60)
        futures = [self.sampler.submit(job) for job in jobs]
        begun = time.perf_counter()
        gate.set()
        for future in futures:
            future.result(300)
        return time.perf_counter() - begun

    def bare_seconds(self, jobs: Sequence[SampleJob]) -> float:
        """The same steps as one batch, without a sampler: Euler around the network."""
        return self.device.call(lambda: self._bare(jobs)).result(300)

    def _bare(self, jobs: Sequence[SampleJob]) -> float:
        import torch

        from inline_core.sampling.noise import NoiseSource
        from inline_core.sampling.sigmas.schedules import sigmas_for

        prepared = [self.modules.prepare(job) for job in jobs]
        first = prepared[0]
        sigmas = sigmas_for("simple", STEPS, first.table)
        side = jobs[0].latent.width // first.space.factor
        shape = (first.space.channels, side, side)
        begun = time.perf_counter()
        x = torch.cat([NoiseSource(job.seed, 1, shape, "cpu").draw() for job in jobs])
        prompts = [item.positive for item in prepared]
        denoiser: Any = first.denoiser
        for sigma, following in itertools.pairwise(sigmas):
            clean = denoiser.predict(x, torch.full((len(jobs),), sigma), prompts)
            x = x + (following - sigma) * (x - clean) / sigma
        spent = time.perf_counter() - begun
        for item in prepared:
            item.release()
        return spent


@contextmanager
def _bench(*, max_batch: int = 8, calibrated: bool = False) -> Iterator[_Bench]:
    made = _Bench(max_batch=max_batch, calibrated=calibrated)
    yield made
    made.device.close(30)


def denoise_overhead(*, quick: bool) -> list[Result]:
    """A lone job through the sampler against the bare loop over the same network."""
    results = []
    with _bench() as bench:
        for side in (128, 256) if quick else (128, 256, 512):
            jobs = [bench.job(side, 1)]
            result = Result(f"lone job {side} px", "ms", "lower", gate=1.05)
            bench.seconds(jobs)
            result = alternate(
                result,
                lambda jobs=jobs: min(bench.seconds(jobs) for _ in range(3)) * 1e3,  # type: ignore[misc]
                lambda jobs=jobs: min(bench.bare_seconds(jobs) for _ in range(3)) * 1e3,  # type: ignore[misc]
                4 if quick else 8,
            )
            result.note = f"{STEPS} steps; limit: the bare loop"
            results.append(result)
    return results


def batch_gain(*, quick: bool) -> list[Result]:
    """Four jobs together: how much faster than one by one, against a bare batch of four."""
    results = []
    with _bench(calibrated=True) as bench, _bench(max_batch=1) as serial:
        for side in (128, 256) if quick else (128, 256, 512):
            jobs = [bench.job(side, seed) for seed in range(4)]
            for _ in range(4):
                bench.seconds(jobs)  # the calibration, with real steps
            serial.seconds(jobs)
            gain = Result(f"4 jobs {side} px, gain", "x", "higher", gate=0.9)
            safe = Result(f"4 jobs {side} px vs serial", "ms", "lower", gate=1.03)
            for _ in range(4 if quick else 8):
                one_by_one = min(serial.seconds(jobs) for _ in range(2))
                together = min(bench.seconds(jobs) for _ in range(2))
                bare = min(bench.bare_seconds(jobs) for _ in range(2))
                gain.us.append(one_by_one / together)
                gain.limit.append(one_by_one / bare)
                safe.us.append(together * 1e3)
                safe.limit.append(one_by_one * 1e3)
            gain.note = "limit: gain of a bare batch of 4"
            safe.note = "limit: INLINE_MAX_BATCH=1"
            results += [gain, safe]
    return results


def pipeline_overlap(*, quick: bool) -> list[Result]:
    """Runs that hold the device for 200 ms and then write a 1024 x 1024 picture."""
    import tempfile

    from inline_core.settings import Settings
    from tests.live import live_server

    count = 8
    result = Result(f"{count} runs of 200 ms + PNG 1024", "ms", "lower", gate=1.1)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), demo_model=False, warm_up=False)
        spec = spec_of(_device_node())
        with live_server(settings, {spec.type: spec}) as server:
            for number in range(2 if quick else 5):
                nodes = [{"id": "n", "type": spec.type, "params": {"red": number}}]
                server.http.post("/v1/queue/pause")
                runs = [server.submit(nodes, "n", force=True).json()["runId"] for _ in range(count)]
                begun = time.perf_counter()
                server.http.post("/v1/queue/resume")
                for run_id in runs:
                    server.wait_until_final(run_id)
                result.us.append((time.perf_counter() - begun) * 1e3)
                result.limit.append(count * 200.0)
    result.note = "limit: the device time alone"
    return [result]


def _device_node() -> Callable[..., Any]:
    """A node that holds the only device for a while, and gives a picture like a photograph."""
    from benchmarks.scenarios.takes import photo

    device, pause = threading.Lock(), threading.Event()
    pixels = photo(1024)  # (height, width, 3)

    @node(
        "bench/device",
        title="Device",
        category="Bench",
        outputs=[Port(PortKind.IMAGE)],
        output_kind="image",
        cacheable=False,
    )
    def hold(ctx: NodeContext, *, red: int = 0) -> Image:
        with device:
            ctx.check_cancelled()
            pause.wait(0.2)
        own = pixels.copy()
        own[0, 0, 0] = red
        return Image(own)

    return hold
