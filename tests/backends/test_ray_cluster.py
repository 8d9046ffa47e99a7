"""Whole jobs on the workers of a real Ray cluster: one with two workers for most of the tests.

The tests that end workers come last, as it takes some seconds until there are new ones.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from inline_core.engine.cluster import DRIVER_MODULE, same_releases
from inline_core.errors import (
    DoesNotFit,
    InvalidParam,
    ModelFileMissing,
    RunCancelled,
    Unavailable,
    WorkerLost,
)
from inline_core.sampling.backends.ray_cluster import RaySampler
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from inline_core.settings import Settings
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.live import LiveServer, live_server
from tests.processes import alive

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(150)]

# worker-1 takes small pictures only, worker-2 larger ones, neither the largest.
OVERRIDES = ({"vram_budget": 620}, {"vram_budget": 1024})
LARGER, LARGEST = 512, 16384


class Cancel:
    def __init__(self) -> None:
        self.asked = threading.Event()

    def check(self) -> None:
        if self.asked.is_set():
            raise RunCancelled


@dataclass
class Cluster:
    """A cluster with two workers, and a sampler of this process to compare with."""

    sampler: RaySampler
    bench: Bench

    def workers(self) -> dict[str, dict[str, Any]]:
        return {worker["name"]: worker for worker in self.sampler.stats()["workers"]}

    def all_ready(self) -> None:
        def ready() -> bool:
            workers = self.workers()
            return len(workers) == 2 and all(w["state"] == "ready" for w in workers.values())

        until(ready, 90)

    def make(self, job: SampleJob) -> SampleResult:
        return self.sampler.submit(job).result(90)

    @contextmanager
    def busy(self, **changes: Any) -> Iterator[str]:
        """Keep one worker busy; gives its name."""
        cancel, began = Cancel(), threading.Event()
        endless = self.bench.job(steps=5000, seed=1, **changes)
        watched = replace(endless, cancel=cancel, on_step=lambda _: began.set())
        future = self.sampler.submit(watched)
        try:
            assert began.wait(60)
            until(lambda: self.sampler.stats()["active"] == 1, 10)
            yield next(name for name, worker in self.workers().items() if worker["active"])
        finally:
            cancel.asked.set()
            with pytest.raises(RunCancelled):
                future.result(30)


def until(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline, pause = time.monotonic() + timeout_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        pause.wait(0.02)


def ray_settings(models: Path, data: Path, **changes: Any) -> Settings:
    values: dict[str, Any] = {
        "models_dir": models,
        "data_dir": data,
        "demo_model": False,
        "threads": 1,
        "profile": "cpu",
        "ray_address": "local",
    }
    return Settings(**values | changes)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models: `z` and `other`."""
    folder = tiny.save_models(tmp_path_factory.mktemp("models"))
    other = tiny.original_keys(tiny.transformer(5).state_dict())
    tiny.save(other, folder / "diffusion_models/other.safetensors")
    tiny.settle(folder)
    return folder


@pytest.fixture(scope="module")
def cluster(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = ray_settings(models, tmp_path_factory.mktemp("data"))
    sampler = RaySampler(settings, same_releases(), DRIVER_MODULE, workers=2, overrides=OVERRIDES)
    made = Cluster(sampler, make_bench(models))
    try:
        # The first job starts everything.
        sampler.submit(made.bench.job(model="z.safetensors")).result(120)
        made.all_ready()
        yield made
    finally:
        sampler.fail_all(Unavailable("the tests are over"))
        assert made.bench.close()


def test_the_same_picture_as_in_process(cluster: Cluster) -> None:
    steps: list[StepReport] = []
    phases: list[str] = []
    job = cluster.bench.job(cfg=3.0, negative="blurry", batch=2, seed=11, sampler="dpmpp_2m")
    watched = replace(
        job, on_step=steps.append, on_phase=lambda phase, _, status: phases.append(phase)
    )
    result = cluster.make(watched)
    here = cluster.bench.sampler.submit(job).result(60)
    assert torch.equal(result.latent.samples, here.latent.samples)
    assert result.denoised is not None
    assert here.denoised is not None
    assert torch.equal(result.denoised.samples, here.denoised.samples)
    assert [(one.step, one.step_count) for one in steps] == [(n, 4) for n in range(1, 5)]
    assert "loading" in phases
    made_by = result.provenance["worker"]
    assert made_by["name"] in {"worker-1", "worker-2"}
    assert made_by["node"] == socket.gethostname()
    assert result.latent.provenance["worker"] == made_by
    facts = {**result.provenance}
    del facts["worker"]
    same = {key: value for key, value in here.provenance.items() if key != "placement"}
    assert {key: value for key, value in facts.items() if key != "placement"} == same


def test_latents_go_there_and_back(cluster: Cluster) -> None:
    first = cluster.make(cluster.bench.job(seed=3))
    job = cluster.bench.job(latent=first.latent, denoise=0.5, seed=4)
    again = cluster.make(job)
    assert torch.equal(again.latent.samples, cluster.bench.latents(job))
    # What came is the caller's own.
    again.latent.samples.zero_()


def test_jobs_are_spread_over_the_workers(cluster: Cluster) -> None:
    jobs = [cluster.bench.job(seed=seed, steps=20) for seed in range(6)]
    results = [future.result(90) for future in [cluster.sampler.submit(job) for job in jobs]]
    names = [result.provenance["worker"]["name"] for result in results]
    assert sorted(names) == ["worker-1"] * 3 + ["worker-2"] * 3
    # On one worker they share passes, as in process.
    assert max(result.provenance["batch"] for result in results) > 1
    for job, result in zip(jobs, results, strict=True):
        difference = (result.latent.samples - cluster.bench.latents(job)).abs().max()
        assert float(difference) < 1e-4


def test_a_new_model_goes_where_most_memory_is_free(cluster: Cluster) -> None:
    workers = cluster.workers()
    assert workers["worker-1"]["freeBytes"] < workers["worker-2"]["freeBytes"]
    job = cluster.bench.job(model="other.safetensors", seed=2)
    first = cluster.make(job)
    assert first.provenance["worker"]["name"] == "worker-2"
    assert torch.equal(first.latent.samples, cluster.bench.latents(job))
    until(lambda: "other.safetensors" in cluster.workers()["worker-2"]["models"], 10)
    # Busy, it is not waited for, though it has the model.
    with cluster.busy(model="other.safetensors") as name:
        assert name == "worker-2"
        second = cluster.make(cluster.bench.job(model="other.safetensors", seed=3))
    assert second.provenance["worker"]["name"] == "worker-1"


def test_what_does_not_fit_on_one_goes_to_another(cluster: Cluster) -> None:
    with cluster.busy(size=LARGER) as name:
        # Only there, though the other one has nothing to do.
        assert name == "worker-2"
        result = cluster.make(cluster.bench.job(size=LARGER, steps=1))
    assert result.provenance["worker"]["name"] == "worker-2"
    [note] = [warning for warning in result.warnings if warning.startswith("Passed over")]
    assert "worker-1: other.safetensors at 512x512 needs" in note


def test_what_fits_nowhere_is_refused_with_numbers(cluster: Cluster) -> None:
    with pytest.raises(DoesNotFit, match=r"worker-2 on .*16384x16384 needs .*, .* available"):
        cluster.make(cluster.bench.job(size=LARGEST))


def test_errors_come_back_with_their_code_and_machine(cluster: Cluster) -> None:
    with pytest.raises(InvalidParam, match=r"width is 72.*worker-\d on "):
        cluster.make(cluster.bench.job(size=72))
    job = cluster.bench.job()
    lost = replace(job.model, path=job.model.path.with_name("elsewhere.safetensors"))
    with pytest.raises(ModelFileMissing, match=rf"worker-1 on {socket.gethostname()}: "):
        cluster.make(replace(job, model=lost))
    with pytest.raises(InvalidParam):
        cluster.sampler.submit(replace(job, sampler="none such"))
    assert not cluster.sampler.stats()["lost"]


def test_cancel_ends_a_job_within_a_step(cluster: Cluster) -> None:
    cancel, began = Cancel(), threading.Event()
    job = replace(cluster.bench.job(steps=5000), cancel=cancel, on_step=lambda _: began.set())
    future = cluster.sampler.submit(job)
    assert began.wait(60)
    cancel.asked.set()
    asked_s = time.monotonic()
    with pytest.raises(RunCancelled):
        future.result(30)
    assert time.monotonic() - asked_s < 5
    until(lambda: not cluster.sampler.stats()["active"], 10)


def test_a_waiting_job_is_cancelled_at_once(cluster: Cluster) -> None:
    cancel = Cancel()
    cancel.asked.set()
    with pytest.raises(RunCancelled):
        cluster.sampler.submit(replace(cluster.bench.job(), cancel=cancel)).result(5)


def test_a_preview_is_made_by_the_worker_when_somebody_looks(cluster: Cluster) -> None:
    shown: list[bytes] = []
    cancel = Cancel()
    reports: list[StepReport] = []

    def on_step(report: StepReport) -> None:
        reports.append(report)

    job = replace(cluster.bench.job(steps=5000), cancel=cancel, on_step=on_step)
    future = cluster.sampler.submit(job)
    until(lambda: bool(reports), 60)
    preview = reports[-1].preview
    assert preview is not None
    shown.append(preview())
    cancel.asked.set()
    with pytest.raises(RunCancelled):
        future.result(30)
    assert Image.open(BytesIO(shown[0])).size[0] > 0


def kill_at_step(cluster: Cluster, job: SampleJob, times: int) -> tuple[SampleResult | None, Any]:
    """Kill the worker of a job as often as asked, each time in the middle of it."""
    moved = threading.Event()
    future = cluster.sampler.submit(replace(job, on_step=lambda _: moved.set()))
    killed: list[int] = []
    for _ in range(times):
        moved.clear()
        assert moved.wait(90)
        until(lambda: any(w["active"] and w["pid"] not in killed for w in running(cluster)), 30)
        [worker] = [w for w in running(cluster) if w["active"]]
        os.kill(worker["pid"], signal.SIGKILL)
        killed.append(worker["pid"])
        until(lambda pid=worker["pid"]: pid not in [w["pid"] for w in running(cluster)], 30)  # type: ignore[misc]
    error = future.exception(90)
    return (None if error else future.result()), error


def running(cluster: Cluster) -> list[dict[str, Any]]:
    return [worker for worker in cluster.workers().values() if worker["state"] == "ready"]


def test_a_job_whose_worker_is_killed_is_made_by_another(cluster: Cluster) -> None:
    cluster.all_ready()
    job = cluster.bench.job(steps=300, seed=21)
    result, error = kill_at_step(cluster, job, 1)
    assert error is None
    assert result is not None
    assert torch.equal(result.latent.samples, cluster.bench.latents(job))
    assert cluster.sampler.stats()["lost"] == 1


def test_a_job_that_loses_two_workers_fails_and_names_the_last(cluster: Cluster) -> None:
    result, error = kill_at_step(cluster, cluster.bench.job(steps=5000, seed=22), 2)
    assert result is None
    assert isinstance(error, WorkerLost)
    assert f"on {socket.gethostname()} (process" in error.message
    assert cluster.sampler.stats()["lost"] == 3


def test_the_end_leaves_nothing(cluster: Cluster) -> None:
    before = cluster.sampler.pids
    assert len(before) > 3
    waiting = cluster.sampler.submit(cluster.bench.job(steps=5000))
    cluster.sampler.fail_all(Unavailable("stopping"))
    with pytest.raises(Unavailable, match="stopping"):
        waiting.result(0)
    assert not alive(before)
    with pytest.raises(Unavailable):
        cluster.sampler.submit(cluster.bench.job())


@pytest.fixture
def alone(models: Path) -> Iterator[Bench]:
    made = make_bench(models)
    yield made
    assert made.close()


@pytest.mark.parametrize("listens", [False, True], ids=["nobody there", "silent"])
def test_a_cluster_that_cannot_be_reached_is_named_in_time(
    alone: Bench, models: Path, tmp_path: Path, listens: bool
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listens:
            taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = ray_settings(models, tmp_path, ray_address=address)
        sampler = RaySampler(settings, same_releases(), DRIVER_MODULE, connect_timeout_s=10)
        try:
            with pytest.raises(WorkerLost, match=f"INLINE_RAY_ADDRESS={address} cannot be"):
                sampler.submit(alone.job()).result(40)
            assert not sampler.pids
            # The next job tries again.
            sampler.submit(alone.job())
            until(lambda: sampler.stats()["starts"] == 2, 20)
        finally:
            sampler.fail_all(Unavailable("stopping"))


def test_a_server_with_a_cluster_gives_the_same_takes(
    tiny_server: LiveServer, tmp_path: Path
) -> None:
    def picture(server: LiveServer, seed: int) -> Image.Image:
        nodes = [
            {"id": "p", "type": "input/text", "params": {"text": "a red circle"}},
            {
                "id": "g",
                "type": "alibaba/z-image-turbo",
                "params": {"width": 64, "height": 64, "steps": 3, "seed": seed},
                "inputs": {"prompt": {"from": "p", "output": "text"}},
            },
        ]
        done = server.submit(nodes, "g", wait=100).json()
        assert done.get("status") == "done", done
        data = server.http.get(f"/v1/takes/{done['takes'][0]['id']}/bytes").content
        return Image.open(BytesIO(data))

    settings = ray_settings(tiny_server.settings.models_dir, tmp_path / "data", walkers=1)
    with live_server(settings) as server:
        server.http.timeout = 120
        first = picture(server, 5)
        assert first.tobytes() == picture(tiny_server, 5).tobytes()
        health = server.http.get("/v1/health").json()
        [worker] = health["models"]["sampler"]["workers"]
        assert (worker["state"], worker["jobs"]) == ("ready", 1)
        assert "inline_render_sampler_jobs" in server.http.get("/metrics").text
        # The server outlives the process that uses Ray, and the cluster that it had started.
        sampler = server.services.render.batching()[1]
        assert isinstance(sampler, RaySampler)
        before = sampler.pids
        os.kill(before[0], signal.SIGKILL)
        assert picture(server, 6).tobytes() == picture(tiny_server, 6).tobytes()
        assert not alive(before)
        after = sampler.pids
    assert not alive(after)
