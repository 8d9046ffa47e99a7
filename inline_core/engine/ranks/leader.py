"""The rank that takes jobs: it steps them in batches, as a server without a group does."""

from __future__ import annotations

import functools
import queue
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from inline_core.devices.worker import DeviceThread
from inline_core.engine.ranks.link import Link
from inline_core.engine.ranks.orders import Orders
from inline_core.engine.ranks.splitting import GroupSplitting, verdict
from inline_core.errors import InlineError, OutOfMemory, RunCancelled
from inline_core.loading.pool import ComponentPool
from inline_core.sampling.backends.inprocess import InProcessSampler
from inline_core.sampling.family import Prepared
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from inline_core.settings import Settings


class _Cancel:
    """Whether the server has cancelled a job."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def check(self) -> None:
        """Return, or raise `RunCancelled`."""
        if self.asked.is_set():
            raise RunCancelled


class _SplitModels:
    """Implements `ModelSource`: tells the splitting which split the next model is loaded for."""

    def __init__(self, modules: Any, splitting: GroupSplitting) -> None:
        self._modules = modules
        self._splitting = splitting

    def prepare(self, job: SampleJob) -> Prepared:
        """See `ModelSource.prepare`."""
        self._splitting.use(job.split)
        prepared: Prepared = self._modules.prepare(job)
        return prepared

    def free_unleased(self) -> None:
        """See `ModelSource.free_unleased`."""
        self._modules.free_unleased()


class Leader:
    """Runs jobs of the server; `lead` is for the main thread of the process."""

    def __init__(
        self,
        orders: Orders,
        link: Link,
        splitting: GroupSplitting,
        modules: Any,
        settings: Settings,
        device: str,
        pool: ComponentPool,
    ) -> None:
        """`modules` is a `families.modules.ModuleSource` over `pool`, `device` this rank's name."""
        self._pool = pool
        self._name = device
        self._orders = orders
        self._link = link
        self._threads = torch.get_num_threads()
        self._device = DeviceThread("device-rank", around=self._around)
        models = _SplitModels(modules, splitting)
        self._sampler = InProcessSampler(self._device, models, settings.max_batch)
        self._cancels: dict[int, _Cancel] = {}
        self._previews: dict[int, Any] = {}
        self._show = ThreadPoolExecutor(1, thread_name_prefix="rank-preview")

    def lead(self, messages: queue.SimpleQueue[dict[str, Any]]) -> None:
        """Handle messages of the server until it dissolves the group."""
        while True:
            message = messages.get()
            if message["kind"] == "job":
                self._take(message["number"], message["job"])
            elif message["kind"] == "cancel":
                cancel = self._cancels.get(message["number"])
                if cancel is not None:
                    cancel.asked.set()
            elif message["kind"] == "preview":
                self._show.submit(self._preview, message["number"])
            elif message["kind"] == "stop":
                self._device.call(functools.partial(self._orders.give, {"do": "stop"})).result()
                self._link.finish()
                self._link.send(kind="stopped")
                return

    def _around(self, loop: Any) -> None:
        torch.set_num_threads(self._threads)
        if self._name.startswith("cuda"):
            torch.cuda.set_device(self._name)
        with torch.inference_mode():
            loop()

    def _take(self, number: int, job: SampleJob) -> None:
        cancel = self._cancels[number] = _Cancel()
        taken_s = time.monotonic()

        def on_step(report: StepReport) -> None:
            self._previews[number] = report.preview
            self._link.send(
                kind="step",
                number=number,
                report=replace(report, preview=None),
                shows=report.preview is not None,
            )

        def on_phase(phase: str, fraction: float, status: str) -> None:
            self._link.send(
                kind="phase", number=number, phase=phase, fraction=fraction, status=status
            )

        watched = replace(job, cancel=cancel, on_step=on_step, on_phase=on_phase)
        try:
            future = self._sampler.submit(watched)
        except InlineError as error:
            stats = {"sampler": self._sampler.stats(), "pool": self._pool.stats()}
            self._link.send(kind="error", number=number, **verdict(error), **stats)
            return
        future.add_done_callback(functools.partial(self._settle, number, taken_s))

    def _settle(self, number: int, taken_s: float, future: Future[SampleResult]) -> None:
        self._cancels.pop(number, None)
        self._previews.pop(number, None)
        error = future.exception()
        stats = {"sampler": self._sampler.stats(), "pool": self._pool.stats()}
        if error is None:
            spent_s, result = time.monotonic() - taken_s, future.result()
            try:
                self._link.send(
                    kind="result", number=number, result=result, spent_s=spent_s, **stats
                )
            except InlineError as problem:
                # A result that cannot be sent must not leave the server waiting for it.
                self._link.send(kind="error", number=number, **verdict(problem), **stats)
        elif isinstance(error, RunCancelled):
            self._link.send(kind="cancelled", number=number, **stats)
        else:
            told = verdict(error)
            if told["code"] == OutOfMemory.code and not told["message"].startswith("rank "):
                # Where it is another one's, its message says so.
                told["message"] = f"rank {self._link.place.rank}: {told['message']}"
            self._link.send(kind="error", number=number, **told, **stats)

    def _preview(self, number: int) -> None:
        """Encode what the last step of a job looks like, beside the next one."""
        show = self._previews.get(number)
        picture = None
        if show is not None:
            try:
                with torch.inference_mode():
                    picture = bytes(show())
            except Exception as error:  # noqa: BLE001 - a preview never ends a run
                sys.stderr.write(f"no preview: {type(error).__name__}: {error}\n")
        self._link.send(kind="picture", number=number, picture=picture)
