"""A worker of a Ray cluster: it makes jobs of the server on its device, batched as in process.

Ray makes one `ClusterWorker` in a process of its own and calls it from several threads.  What goes
in and out are plain values, and bytes that `codec.pack` has made; nothing is pickled by class.
"""

from __future__ import annotations

import functools
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from inline_core.devices.policy import Room
from inline_core.engine.ranks.link import versions
from inline_core.engine.render import TorchRender
from inline_core.errors import (
    DoesNotFit,
    InlineError,
    ModelFileInvalid,
    ModelFileMissing,
    RunCancelled,
    RuntimeMissing,
)
from inline_core.families.registry import family_of, open_catalog
from inline_core.sampling.backends.parallel.codec import pack, unpack
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from inline_core.settings import Settings

# Faults of this machine: another one may be able to do the job.
_REFUSALS: Final = (DoesNotFit, ModelFileInvalid, ModelFileMissing, RuntimeMissing)
_STATE_FRESH_S: Final = 0.5


class _Cancel:
    """Whether the server has cancelled a job."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def check(self) -> None:
        """Return, or raise `RunCancelled`."""
        if self.asked.is_set():
            raise RunCancelled


class ClusterWorker:
    """Runs jobs; every method is for any thread.  What happens to them is told by `events`."""

    def __init__(self, settings: Mapping[str, Any], name: str, shared_by: int = 1) -> None:
        """`settings` are the server's; `shared_by` workers share the processors of this machine."""
        self._name = name
        given = Settings(**settings)
        self._render = TorchRender(_own(given, name, shared_by), open_catalog(given))
        self._news = threading.Condition()
        self._told: list[tuple[int, dict[str, Any]]] = []
        self._count = 0
        self._cancels: dict[int, _Cancel] = {}
        self._previews: dict[int, Any] = {}
        self._state: tuple[float, dict[str, Any]] | None = None
        self._render.warm_up()

    def hello(self) -> dict[str, Any]:
        """Who this is; torch is still being imported."""
        return {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "versions": versions(),
            "device": self._render.policy.machine.device,
            "state": self._now(),
        }

    def take(self, number: int, body: bytes, blobs: Sequence[np.ndarray[Any, Any]]) -> None:
        """Queue a job if it fits here; returns once it is queued or refused."""
        taken_s = time.monotonic()
        cancel = self._cancels.setdefault(number, _Cancel())
        try:
            # Copied, because what Ray gives is shared and cannot be written to.
            job: SampleJob = unpack(body, [np.array(blob) for blob in blobs])
            modules, sampler = self._render.batching()
            try:
                plan = modules.plan(job, family_of(job.model))
            except _REFUSALS as error:
                self._refuse(number, error)
                return
            watched = replace(job, cancel=cancel, **self._callbacks(number))
            future = sampler.submit(watched)
        except RuntimeMissing as error:
            self._refuse(number, error)
        except Exception as error:  # noqa: BLE001 - the border of the worker
            self._end(number, kind="error", **_verdict(error))
        else:
            settle = functools.partial(self._settle, number, taken_s, plan.model.device)
            future.add_done_callback(settle)

    def cancel(self, number: int) -> None:
        """End a job within a step."""
        self._cancels.setdefault(number, _Cancel()).asked.set()

    def preview(self, number: int) -> None:
        """Tell what the last step of a job looks like."""
        show, picture = self._previews.get(number), None
        if show is not None:
            import torch

            try:
                with torch.inference_mode():
                    picture = show()
            except Exception:  # noqa: BLE001 - a preview never ends a run
                picture = None
        self._tell(number, kind="picture", picture=picture)

    def events(self, after: int, wait_s: float) -> dict[str, Any]:
        """What happened after an event, and how the worker is; waits so long for something."""
        with self._news:
            self._told = [told for told in self._told if told[0] > after]
            self._news.wait_for(lambda: bool(self._told), wait_s)
            told = list(self._told)
        return {
            "last": told[-1][0] if told else after,
            "events": [event for _, event in told],
            "state": self._now(),
        }

    # ---- inside --------------------------------------------------------------------------------

    def _callbacks(self, number: int) -> dict[str, Any]:
        def on_step(report: StepReport) -> None:
            self._previews[number] = report.preview
            body, _ = pack(replace(report, preview=None))
            self._tell(number, kind="step", body=body, shows=report.preview is not None)

        def on_phase(phase: str, fraction: float, status: str) -> None:
            self._tell(number, kind="phase", phase=phase, fraction=fraction, status=status)

        return {"on_step": on_step, "on_phase": on_phase}

    def _settle(
        self, number: int, taken_s: float, device: str, future: Future[SampleResult]
    ) -> None:
        error = future.exception()
        if isinstance(error, RunCancelled):
            self._end(number, kind="cancelled")
        elif error is not None:
            self._end(number, kind="error", **_verdict(error))
        else:
            made_by = {"name": self._name, "node": socket.gethostname(), "device": device}
            body, blobs = pack(_signed(future.result(), made_by))
            spent_s = time.monotonic() - taken_s
            self._state = None
            self._end(number, kind="result", body=body, blobs=blobs, spent_s=spent_s)

    def _refuse(self, number: int, error: InlineError) -> None:
        self._end(
            number,
            kind="refused",
            needed_bytes=int(error.details.get("neededBytes", 0)),
            available_bytes=int(error.details.get("availableBytes", 0)),
            **_verdict(error),
        )

    def _end(self, number: int, **event: Any) -> None:
        self._cancels.pop(number, None)
        self._previews.pop(number, None)
        self._tell(number, **event)

    def _tell(self, number: int, **event: Any) -> None:
        with self._news:
            self._count += 1
            self._told.append((self._count, {"number": number, **event}))
            self._news.notify_all()

    def _now(self) -> dict[str, Any]:
        """Free memory of the device and the names of what is loaded; looked up now and then."""
        known, now = self._state, time.monotonic()
        if known is None or now - known[0] > _STATE_FRESH_S:
            held = self._render.stats()["pool"]["held"]
            device = sum(item["deviceBytes"] for item in held)
            taken = Room(device, sum(item["bytes"] for item in held) - device)
            policy = self._render.policy
            room = policy.room(taken)
            on_gpu = policy.machine.kind == "cuda"
            free = room.device_bytes if on_gpu else room.host_bytes
            known = (now, {"free_bytes": free, "models": sorted(item["name"] for item in held)})
            self._state = known
        return known[1]


def _own(settings: Settings, name: str, shared_by: int) -> Settings:
    """The server's settings for a worker, which makes jobs itself, in a folder of its own."""
    threads = settings.threads or max(1, len(os.sched_getaffinity(0)) // shared_by)
    folder = settings.data_dir / "workers" / f"{socket.gethostname()}-{name}"
    _make(folder)
    return settings.model_copy(
        update={"ray_address": None, "threads": threads, "data_dir": folder, "warm_up": True}
    )


def _make(folder: Path) -> None:
    """Make the folder for what is learnt; without it, it is learnt anew with each start."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return


def _signed(result: SampleResult, made_by: Mapping[str, str]) -> SampleResult:
    """The result with the worker that made it in its provenance."""

    def signed(provenance: Mapping[str, Any]) -> dict[str, Any]:
        return {**provenance, "worker": dict(made_by)}

    latent = replace(result.latent, provenance=signed(result.latent.provenance))
    denoised = result.denoised
    if denoised is not None:
        denoised = replace(denoised, provenance=signed(denoised.provenance))
    provenance = signed(result.provenance)
    return replace(result, latent=latent, denoised=denoised, provenance=provenance)


def _verdict(error: BaseException) -> dict[str, str]:
    """What the server has to know of an error."""
    if isinstance(error, InlineError):
        return {"code": error.code, "message": error.message}
    return {"code": "internal", "message": f"{type(error).__name__}: {error}"}
