"""One picture split over several GPUs: how much faster, how equal, and what a lost rank costs.

On a processor it runs with two ranks over gloo and small models, so that it works on a GPU machine.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from torch import Tensor

from device_check.bench import Bench, relative_error
from device_check.report import Row
from device_check.studio import job_for, settings_for, studio
from inline_core.devices.policy import DevicePolicy
from inline_core.devices.probe import vram_free_bytes
from inline_core.devices.split import Split
from inline_core.engine.ranks.link import versions
from inline_core.errors import Unavailable
from inline_core.families.registry import open_catalog
from inline_core.loading.catalog import Catalog
from inline_core.sampling.backends.parallel.group import GroupPlan
from inline_core.sampling.backends.parallel.sampler import GroupSampler
from inline_core.sampling.job import SampleJob, SampleResult, StepReport

NAME: Final = "g several"
FAULTS: Final = "g lost rank"
_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_WAIT_S: Final = 300.0
_STEPS: Final = 8
_RUNS: Final = 5
_MOST_ERROR: Final = 0.05
_MOST_IPC_MS: Final = 6.0
_MOST_GROWTH: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Several:
    """A group on all GPUs of the machine."""

    bench: Bench
    catalog: Catalog
    group: GroupSampler
    world: int

    def run(self, key: str, job: SampleJob) -> SampleResult:
        """One job, split."""
        return self.group.submit(replace(job, split=Split.of_key(key))).result(_WAIT_S)

    def free_bytes(self) -> list[int]:
        """Free memory of each GPU; empty on a processor."""
        return [vram_free_bytes(gpu) or 0 for gpu in self.bench.device.machine.gpus]


@contextlib.contextmanager
def _several(bench: Bench) -> Iterator[Several]:
    machine = bench.device.machine
    world = len(machine.gpus) if bench.device.is_cuda else 2
    gpus = tuple(gpu.uuid or str(gpu.index) for gpu in machine.gpus)
    settings = settings_for(bench, parallel_step_timeout_s=60.0)
    # Ranks use the code of this checkout too.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    group = GroupSampler(settings, lambda _: GroupPlan(world, gpus), versions())
    try:
        yield Several(bench, open_catalog(settings), group, world)
    finally:
        group.fail_all(Unavailable("the check is over"))


def _keys(world: int, *, is_cuda: bool) -> list[str]:
    """Every exact way to use all ranks."""
    keys = [f"xdit:ulysses={world}", f"diffusers:ulysses={world}", f"xdit:ring={world}"]
    if is_cuda:
        keys.append(f"diffusers:ring={world}")
    mixed = [ulysses for ulysses in range(2, world) if world % ulysses == 0]
    return [*keys, *(f"xdit:ulysses={ulysses},ring={world // ulysses}" for ulysses in mixed)]


def several(bench: Bench) -> None:
    """Seconds a step, errors against one GPU, overhead of a job, memory over runs."""
    job, reference, alone_s = _alone(bench)
    with _several(bench) as made:
        bench.report.add(_links(bench))
        for key in _keys(made.world, is_cuda=bench.device.is_cuda):
            bench.deadline.check(5.0)
            try:
                _measure(made, key, job, reference, alone_s)
            except Exception as error:  # noqa: BLE001 - the other ways are measured all the same
                bench.report.fail(NAME, f"{key}: {error}")
        stats = made.group.stats()
        bench.report.add(Row(NAME, "group start", stats["lastStartS"], "s"))


def _alone(bench: Bench) -> tuple[SampleJob, Tensor, float]:
    """The job, its latents on one GPU, and its seconds there."""
    with studio(bench) as made:
        job = job_for(made.catalog, bench.side, steps=_STEPS)
        made.run([replace(job, steps=1)])
        reference = made.latents(job).clone()
        return job, reference, bench.device.seconds(lambda: made.run([job]))


def _links(bench: Bench) -> Row:
    policy = DevicePolicy(settings_for(bench), bench.device.machine)
    gpus = bench.device.machine.gpus
    note = policy.topology.in_words([gpu.index for gpu in gpus]) if gpus else "processes over gloo"
    return Row(NAME, "GPUs", float(len(gpus)), "", note=note)


def _measure(made: Several, key: str, job: SampleJob, reference: Tensor, alone_s: float) -> None:
    bench, add = made.bench, made.bench.report.add
    found = made.run(key, job)
    error = relative_error(found.latent.samples, reference)
    note = "; ".join(found.warnings)
    add(Row(NAME, f"{key}: error", error, "", _MOST_ERROR, at_most=1.0, note=note))
    before = made.free_bytes()
    times, overheads = [], []
    for _ in range(_RUNS):
        bench.deadline.check(2.0)
        started = time.perf_counter()
        made.run(key, job)
        times.append(time.perf_counter() - started)
        overheads.append(made.group.stats()["lastIpcMs"])
    what = f"{key}: one GPU / split"
    add(Row(NAME, what, alone_s, "s", min(times), at_least=bench.bound(1.0)))
    what = f"{key}: overhead of a job"
    add(Row(NAME, what, min(overheads), "ms", _MOST_IPC_MS, at_most=bench.bound(1.0)))
    growth = max((old - new for old, new in zip(before, made.free_bytes(), strict=True)), default=0)
    value = growth / 1e6 if before else None
    what = f"{key}: growth of memory in {_RUNS} runs"
    add(Row(NAME, what, value, "MB", _MOST_GROWTH / 1e6, at_most=1.0))


def lost_rank(bench: Bench) -> None:
    """A rank is killed in the middle of a job: how long until the job is there all the same."""
    job, reference, _ = _alone(bench)
    key = f"xdit:ulysses={2 if not bench.device.is_cuda else len(bench.device.machine.gpus)}"
    with _several(bench) as made:
        made.run(key, job)
        stepped, killed_s = threading.Event(), itertools.count()

        def on_step(_: StepReport) -> None:
            if next(killed_s) == 0:
                stepped.set()

        watched = replace(job, split=Split.of_key(key), on_step=on_step, steps=4 * _STEPS)
        future = made.group.submit(watched)
        stepped.wait(_WAIT_S)
        started, before = time.perf_counter(), made.group.pids
        os.kill(before[1], signal.SIGKILL)
        future.result(_WAIT_S)
        took = time.perf_counter() - started
        left = _alive(before)
        again = made.run(key, job)
    add = bench.report.add
    add(Row(FAULTS, "seconds until the job is done", took, "s"))
    add(Row(FAULTS, "processes left of the lost group", float(len(left)), ""))
    error = relative_error(again.latent.samples, reference)
    add(Row(FAULTS, "error of the next job", error, "", _MOST_ERROR, at_most=1.0))
    if left:
        bench.report.fail(FAULTS, f"processes left: {left}")


def _alive(pids: Sequence[int]) -> list[int]:
    found = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            found.append(pid)
    return found
