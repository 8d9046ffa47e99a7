"""With a lane, nothing but denoising holds the device."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from inline_core.errors import RunCancelled
from inline_core.loading.component import Role
from inline_core.sampling.job import StepReport
from tests import tiny
from tests.backends.conftest import make_bench
from tests.backends.test_contract import Cancel


class HoldsTheLane:
    """A cancel check that keeps the thread which prepares until it is let go."""

    def __init__(self) -> None:
        self.reached, self.go = threading.Event(), threading.Event()

    def check(self) -> None:
        if threading.current_thread().name == "lane-test":
            self.reached.set()
            assert self.go.wait(30)


def test_jobs_are_stepped_while_others_are_prepared() -> None:
    bench = make_bench(tiny.shared_models(), lane=True)
    seen = threading.Semaphore(0)
    cancel = Cancel()

    def on_step(report: StepReport) -> None:
        del report
        seen.release()

    running = bench.sampler.submit(
        replace(bench.job(steps=100_000, size=96), on_step=on_step, cancel=cancel)
    )
    assert seen.acquire(timeout=30)
    held = HoldsTheLane()
    joining = bench.sampler.submit(replace(bench.job("new words", size=96), cancel=held))
    assert held.reached.wait(30)
    assert bench.sampler.stats()["preparing"] == 1
    for _ in range(5):
        assert seen.acquire(timeout=30)
    held.go.set()
    assert joining.result(30).provenance["batch"] == 2
    cancel.asked.set()
    with pytest.raises(RunCancelled):
        running.result(30)
    assert bench.close()


def test_the_lane_decodes_while_jobs_are_stepped() -> None:
    bench = make_bench(tiny.shared_models(), lane=True)
    assert bench.lane is not None
    latent = bench.sampler.submit(bench.job()).result(30).latent
    vae = bench.catalog.find(Role.VAE, "", family="z-image")
    steps: list[int] = []
    cancel = Cancel()
    stepped = threading.Event()

    def on_step(report: StepReport) -> None:
        steps.append(report.step)
        stepped.set()

    running = bench.sampler.submit(
        replace(bench.job(steps=100_000), on_step=on_step, cancel=cancel)
    )
    assert stepped.wait(30)

    def between_blocks() -> None:
        stepped.clear()
        assert stepped.wait(30)  # a step is made while a block of the decoder waits

    pixels, _ = bench.lane.call(
        lambda: bench.modules.autoencoders.decode(
            vae, latent, latent.samples, between_blocks, tiled=False
        )
    ).result(60)
    assert pixels.shape == (64, 64, 3)
    cancel.asked.set()
    with pytest.raises(RunCancelled):
        running.result(30)
    assert len(steps) > 5
    assert bench.close()


def test_closing_ends_what_is_being_prepared() -> None:
    bench = make_bench(tiny.shared_models(), lane=True)
    held = HoldsTheLane()
    waiting = bench.sampler.submit(replace(bench.job(), cancel=held))
    assert held.reached.wait(30)
    bench.device.call(lambda: bench.sampler.fail_all(RuntimeError("stop"))).result(30)
    with pytest.raises(RuntimeError, match="stop"):
        waiting.result(30)
    held.go.set()
    assert bench.close()
    assert all(item["leases"] == 0 for item in bench.pool.stats()["held"])
