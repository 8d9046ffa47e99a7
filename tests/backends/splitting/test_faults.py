"""Processes of a group that end, stall or run out of memory: noticed, named, and begun again."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import psutil
import pytest
import torch

from inline_core.devices.split import Split
from inline_core.engine.ranks.link import versions
from inline_core.errors import OutOfMemory, PortTaken, RunCancelled, Unavailable, WorkerLost
from inline_core.sampling.backends.parallel.door import knock
from inline_core.sampling.backends.parallel.group import GroupPlan
from inline_core.sampling.backends.parallel.processes import Meeting
from inline_core.sampling.backends.parallel.sampler import GroupSampler
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from inline_core.settings import Settings
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.backends.splitting import faults
from tests.lengths import LONG, at_length
from tests.live import ServerProcess
from tests.processes import alive, children

# Many group starts, of ten seconds and more each.
pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(3000 if LONG else 400)]
SPLIT = Split("diffusers", ulysses=2)
STEPS = 20
STEP_TIMEOUT_S = 3.0
PATIENCE_S = 90.0


def wait_until(true: Callable[[], Any], seconds: float, what: str | Callable[[], str]) -> float:
    """Wait for something; gives how long it took."""
    start = time.monotonic()
    pause = threading.Event()
    while not true():
        assert time.monotonic() - start < seconds, what() if callable(what) else what
        pause.wait(0.01)
    return time.monotonic() - start


def family_of(pid: int) -> list[int]:
    return [child.pid for child in children(pid)]


def leftovers(pid: int) -> list[str]:
    """What the groups of a server have in shared memory and in the folder for temporary files."""
    memory = Path("/dev/shm").glob(f"inline-core-{pid}-*")
    folders = Path(os.environ.get("TMPDIR", "/tmp")).glob(f"inline-core-group-{pid}-*")
    return [str(path) for path in (*memory, *folders)]


class Stop:
    """The cancelling of a job."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def check(self) -> None:
        if self.asked.is_set():
            raise RunCancelled


class Flight:
    """Jobs that were handed to a group together; `moving` is set when all have made a step."""

    def __init__(self, group: GroupSampler, jobs: Sequence[SampleJob]) -> None:
        self.moving = threading.Event()
        self.stops = [Stop() for _ in jobs]
        self.steps = [0] * len(jobs)
        self.reports: list[tuple[int, StepReport]] = []
        self.futures: list[Future[SampleResult]] = []
        for number, job in enumerate(jobs):
            watched = replace(
                job,
                split=SPLIT,
                cancel=self.stops[number],
                on_step=self._noting(number),
            )
            self.futures.append(group.submit(watched))

    def _noting(self, number: int) -> Callable[[StepReport], None]:
        def note(report: StepReport) -> None:
            self.steps[number] = report.step
            self.reports.append((number, report))
            if all(step >= 2 for step in self.steps):
                self.moving.set()

        return note


class Scene:
    """A group whose processes are made to fail, and this process, which makes the same pictures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        models = tiny.shared_models()
        self.bench: Bench = make_bench(models)
        self.settings = Settings(
            models_dir=models,
            demo_model=False,
            threads=1,
            profile="cpu",
            parallel_step_timeout_s=STEP_TIMEOUT_S,
        )
        self.group = self.new_group()
        self.jobs = [
            self.bench.job(prompt=f"a red circle {seed}", seed=seed, steps=STEPS) for seed in (1, 2)
        ]
        self.wanted = [self.bench.latents(job) for job in self.jobs]
        self.figures: list[tuple[str, float]] = []
        self.orphans = 0
        self.threads = self.files = 0

    def new_group(self) -> GroupSampler:
        return GroupSampler(self.settings, lambda _: GroupPlan(SPLIT.world), versions())

    def fly(self) -> Flight:
        """Two jobs and one that is going to be cancelled, in the middle of their steps."""
        spare = replace(self.jobs[0], seed=99)
        flight = Flight(self.group, [*self.jobs, spare])
        assert flight.moving.wait(PATIENCE_S), self.group.stats()
        return flight

    def check(self, futures: Sequence[Future[SampleResult]]) -> None:
        """Both jobs are done and equal what this process makes."""
        for future, wanted in zip(futures, self.wanted, strict=False):
            found = future.result(PATIENCE_S).latent.samples
            assert torch.allclose(found, wanted, atol=1e-4), (found - wanted).abs().max()

    def break_down(self, kind: str, within_s: float, cause: Callable[[Flight], str]) -> str:
        """Have a fault while jobs are in flight, one of them cancelled; gives what was noticed.

        `cause` makes the fault and gives what has to be in the words for it.
        """
        flight = self.fly()
        family = family_of(os.getpid())
        assert len(family) >= 1 + SPLIT.world
        before = self.group.stats()["starts"]
        flight.stops[2].asked.set()
        named = cause(flight)
        noticed_s = wait_until(
            lambda: self.group.stats()["starts"] > before,
            within_s,
            lambda: f"{kind}: {self.group.stats()}",
        )
        left = alive(family)
        self.orphans += len(left)
        assert not left, kind
        # A new group is being started: it has the only folder, and nothing in shared memory.
        assert len(leftovers(os.getpid())) <= 1
        words: str = self.group.stats()["faults"][-1]
        assert named in words, words
        self.figures.append((kind, noticed_s))
        with pytest.raises(RunCancelled):
            flight.futures[2].result(PATIENCE_S)
        self.check(flight.futures)
        return words

    def sizes(self) -> tuple[int, int]:
        """How many threads and open files this process has."""
        mine = psutil.Process()
        return mine.num_threads(), mine.num_fds()

    def close(self) -> None:
        family = family_of(os.getpid())
        self.group.fail_all(Unavailable("the test is over"))
        assert self.bench.close()
        assert not alive(family)
        assert not leftovers(os.getpid())


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in faults.install(folder).items():
            patch.setenv(name, value)
        made = Scene(folder)
        yield made
        made.close()


def rank_words(scene: Scene, rank: int) -> tuple[int, str]:
    pid = next(one["pid"] for one in scene.group.stats()["ranks"] if one["rank"] == rank)
    return pid, f"rank {rank} (process {pid})"


def kill_rank(scene: Scene, rank: int, number: signal.Signals) -> Callable[[Flight], str]:
    def cause(_: Flight) -> str:
        pid, words = rank_words(scene, rank)
        os.kill(pid, number)
        return words

    return cause


def kill_agent(scene: Scene) -> Callable[[Flight], str]:
    def cause(_: Flight) -> str:
        pid = scene.group.pids[0]
        os.kill(pid, signal.SIGKILL)
        return f"torchrun (process {pid}) was ended by signal 9"

    return cause


def test_a_rank_that_cannot_start_and_one_without_memory_for_a_model(scene: Scene) -> None:
    """Neither is the end: the first is begun again, the second fails its job only."""
    faults.set_fault(scene.folder, "import", 0)
    faults.set_fault(scene.folder, "load-memory", 0)
    flight = Flight(scene.group, [scene.jobs[0], replace(scene.jobs[1], seed=98)])
    wait_until(lambda: scene.group.stats()["state"] == "starting", 10, "no start")
    flight.stops[1].asked.set()
    with pytest.raises(RunCancelled):
        flight.futures[1].result(1)
    wait_until(lambda: scene.group.stats()["faults"], PATIENCE_S, "no fault")
    words = scene.group.stats()["faults"][-1]
    assert words == (
        "rank 0 could not start: ModuleNotFoundError: No module named 'something_of_the_fault'"
    )
    with pytest.raises(OutOfMemory, match="rank 0: Out of memory while loading"):
        flight.futures[0].result(PATIENCE_S)
    stats = scene.group.stats()
    assert (stats["starts"], stats["state"]) == (2, "ready")
    scene.check(scene.fly().futures[:2])
    assert scene.group.stats()["starts"] == 2


def test_strangers_and_broken_previews_do_not_matter(scene: Scene) -> None:
    flight = scene.fly()
    address = next(Path(leftovers(os.getpid())[-1]).glob("*.sock"))
    with pytest.raises(AuthenticationError):
        knock(str(address), b"a wrong key")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(address))
        # It says nothing, and nobody waits for it.
        with pytest.raises(AuthenticationError):
            knock(str(address), b"another wrong key")
    faults.set_fault(scene.folder, "preview", 1)
    preview = flight.reports[-1][1].preview
    assert preview is not None
    with pytest.raises(Unavailable):
        preview()
    steps = flight.steps[2]
    flight.stops[2].asked.set()
    with pytest.raises(RunCancelled):
        flight.futures[2].result(10)
    # The step that was being made, the one that is asked about, and one that was on its way.
    assert flight.steps[2] <= steps + 3
    scene.check(flight.futures)
    assert not scene.group.stats()["faults"][1:]


@pytest.mark.parametrize("round_", range(at_length(10, 1)))
def test_processes_that_end_or_stall(
    scene: Scene, round_: int, record_testsuite_property: Callable[[str, object], None]
) -> None:
    scene.break_down("rank killed", 10, kill_rank(scene, 0, signal.SIGKILL))
    # A rank that starts something: that ends, too.
    armed = faults.set_fault(scene.folder, "child", 0)
    flight = scene.fly()
    flight.stops[2].asked.set()
    wait_until(lambda: not armed.exists(), 10, "no child was started")
    scene.check(flight.futures)
    limit_s = STEP_TIMEOUT_S + 10
    words = scene.break_down("rank stalled", limit_s, kill_rank(scene, 0, signal.SIGSTOP))
    assert words.startswith(f"no progress for {STEP_TIMEOUT_S:g} s: rank 0")
    assert not alive([int((scene.folder / "child.pid").read_text())])
    words = scene.break_down("leader killed", 10, kill_rank(scene, 1, signal.SIGKILL))
    assert "(the leading rank) ended" in words
    scene.break_down("torchrun killed", 10, kill_agent(scene))
    run_out_of_memory_in_a_batch(scene)
    threads, files = scene.sizes()
    scene.threads, scene.files = scene.threads or threads, scene.files or files
    assert threads <= scene.threads
    assert files <= scene.files
    record_testsuite_property(f"round {round_}", scene.figures[-5:])
    record_testsuite_property(f"start {round_}", scene.group.stats()["lastStartS"])


def run_out_of_memory_in_a_batch(scene: Scene) -> None:
    """All jobs are made again, each alone."""
    seen: list[Flight] = []

    def cause(flight: Flight) -> str:
        seen.append(flight)
        words = rank_words(scene, 0)[1]
        faults.set_fault(scene.folder, "pass-memory", 0)
        return f"{words} failed during a forward pass: Out of memory"

    scene.break_down("out of memory", 10, cause)
    numbers = [number for number, _ in seen[0].reports]
    again = numbers[-2 * STEPS :]
    assert again == [0] * STEPS + [1] * STEPS


def test_a_rank_that_ends_while_a_job_begins(scene: Scene) -> None:
    """The leader finds nobody to tell what to load: that is no fault of the job."""
    scene.check(scene.fly().futures)
    killed = threading.Event()

    def on_phase(_: str, __: float, status: str) -> None:
        if status == "Loading model" and not killed.is_set():
            killed.set()
            os.kill(rank_words(scene, 0)[0], signal.SIGKILL)

    job = replace(scene.jobs[0], split=SPLIT, on_phase=on_phase)
    scene.check([scene.group.submit(job)])
    assert killed.is_set()
    assert "rank 0" in scene.group.stats()["faults"][-1]


def test_another_release_is_refused(scene: Scene) -> None:
    """At once, in words, and without a second try; another group on this host does not mind."""
    before = family_of(os.getpid())
    faults.set_fault(scene.folder, "version", 0)
    group = scene.new_group()
    with pytest.raises(WorkerLost) as caught:
        group.submit(replace(scene.jobs[0], split=SPLIT)).result(PATIENCE_S)
    ours = versions()["torch"]
    host = socket.gethostname()
    told = f"rank 0 on {host} runs torch 0.0.1, the server torch {ours}: install the same releases"
    assert told in caught.value.message
    assert group.stats()["starts"] == 1
    assert alive(family_of(os.getpid())) == alive(before)
    group.fail_all(Unavailable("the test is over"))


def test_a_port_that_is_taken_is_named_at_once(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        meeting = Meeting("127.0.0.1", port, "a key", 2)
        group = GroupSampler(scene.settings, lambda _: GroupPlan(2, (), meeting), versions())
        start = time.monotonic()
        with pytest.raises(PortTaken) as caught:
            group.submit(replace(scene.jobs[0], split=SPLIT)).result(10)
        assert time.monotonic() - start < 5
        assert f"port {port} of 127.0.0.1" in caught.value.message
        assert "INLINE_PARALLEL_ADDRESS" in caught.value.message
        group.fail_all(Unavailable("the test is over"))


def test_the_death_of_the_server_is_the_end_of_its_groups(
    scene: Scene, tmp_path: Path, tiny_models: Path
) -> None:
    """While a picture is made, while the group starts, while it is idle; the run is not lost."""
    environment = {"INLINE_PARALLEL": "ulysses=2,backend=diffusers", "INLINE_MAX_ATTEMPTS": "9"}
    data = tmp_path / "data"
    servers = []

    def server() -> ServerProcess:
        servers.append(ServerProcess(data, tiny_models, **environment))
        return servers[-1]

    first = server()
    run_id = first.submit(*picture()).json()["runId"]
    with first.socket(run_id) as events:
        while json.loads(events.recv(PATIENCE_S)).get("step", 0) < 2:
            pass
    assert_it_takes_all_with_it(first, 3)
    second = server()
    wait_until(lambda: family_of(second.pid), PATIENCE_S, "the run was not taken up")
    assert_it_takes_all_with_it(second, 1)
    third = server()
    run = third.wait_until_final(run_id)
    assert run["status"] == "done", run["error"]
    assert not leftovers(first.pid)
    assert not leftovers(second.pid)
    assert_it_takes_all_with_it(third, 3)
    whole = ServerProcess(tmp_path / "whole", tiny_models)
    wanted = whole.wait_until_final(whole.submit(*picture()).json()["runId"])
    pictures = [
        np.asarray(PIL.Image.open(path), np.int16)
        for folder in (data, tmp_path / "whole")
        for path in (folder / "takes").rglob("*.png")
    ]
    assert whole.stop() == 0
    assert wanted["status"] == "done"
    assert len(pictures) == 2
    assert np.abs(pictures[0] - pictures[1]).max() <= 1


def picture() -> tuple[list[dict[str, Any]], str]:
    params = {"width": 64, "height": 64, "steps": 30, "seed": 5}
    prompt = {"id": "p", "type": "input/text", "params": {"text": "a fox"}}
    wires = {"prompt": {"from": "p", "output": "text"}}
    node = {"id": "m", "type": "alibaba/z-image-turbo", "params": params, "inputs": wires}
    return [prompt, node], "m"


def assert_it_takes_all_with_it(server: ServerProcess, at_least: int) -> None:
    family = family_of(server.pid)
    assert len(family) >= at_least
    server.kill()
    wait_until(lambda: not alive(family), 5, lambda: f"{alive(family)} outlived the server")
