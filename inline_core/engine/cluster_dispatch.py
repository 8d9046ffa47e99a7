"""Which worker makes which job, and what happens when one is lost: one thread, no Ray in here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from inline_core.errors import InlineError, WorkerLost
from inline_core.sampling.backends.ray_placement import (
    Refusal,
    Slot,
    WorkerView,
    choose_worker,
    differing,
)

_TRIES: Final = 2
# Places are looked for anew so often while jobs wait, and failed ones tried again after so long.
_LOOK_S: Final = 5.0
_AGAIN_S: Final = 60.0
# A worker that is not there by then is not waited for while others are.
_GRACE_S: Final = 30.0
_BEAT_S: Final = 2.0


class Workers(Protocol):
    """The workers of a cluster; `cluster_fleet.Fleet` is the real one."""

    def slots(self) -> tuple[Slot, ...]:
        """Places for workers as the cluster is now."""

    def start(self, slot: Slot, name: str, place: int) -> int:
        """Begin to make a worker; gives its number."""

    def call(self, number: int, method: str, *values: Any) -> None:
        """Call a method of a worker; never fails."""

    def end(self, number: int) -> None:
        """End the process of a worker."""


@dataclass(slots=True, eq=False)
class _Job:
    """A job of the server, packed."""

    number: int
    model: str
    priority: int
    body: bytes
    blobs: list[Any]
    tries: int = 0
    refusals: dict[str, Refusal] = field(default_factory=dict)
    cancelled: bool = False


@dataclass(slots=True, eq=False)
class _Worker:
    """A place in the cluster and who is there; `state` is starting, ready, lost or unused."""

    name: str
    place: int
    slot: Slot
    number: int = 0
    state: str = "lost"
    since_s: float = 0.0
    pid: int = 0
    device: str = ""
    free_bytes: int = 0
    loaded: frozenset[str] = frozenset()
    jobs: dict[int, _Job] = field(default_factory=dict)
    done: int = 0
    lost: int = 0
    why: str = ""

    @property
    def in_words(self) -> str:
        process = f" (process {self.pid})" if self.pid else ""
        return f"{self.name} on {self.slot.host}{process}"


class Dispatcher:
    """Hands jobs to workers; `tell` sends messages to the server."""

    def __init__(
        self,
        workers: Workers,
        tell: Callable[[dict[str, Any]], None],
        versions: Mapping[str, str],
        most_jobs: int,
        start_timeout_s: float,
    ) -> None:
        """`versions` are those every worker must have; one has up to `most_jobs` at a time."""
        self._fleet = workers
        self._tell = tell
        self._versions = dict(versions)
        self._most_jobs = most_jobs
        self._start_timeout_s = start_timeout_s
        self._waiting: dict[int, _Job] = {}
        self._workers: dict[tuple[str, int], _Worker] = {}
        self._looked_s = float("-inf")
        self._stats: dict[str, Any] = {}
        self._shown_s = float("-inf")

    # ---- messages ------------------------------------------------------------------------------

    def from_server(self, message: Mapping[str, Any]) -> None:
        """Take a job, or pass on what is asked of one."""
        number = message["number"]
        if message["kind"] == "job":
            self._waiting[number] = _Job(
                number, message["model"], message["priority"], message["body"], message["blobs"]
            )
            self._forgive()
            self._looked_s = float("-inf")
        elif message["kind"] == "cancel" and number in self._waiting:
            del self._waiting[number]
            self._tell({"kind": "cancelled", "number": number})
        else:
            for worker in self._workers.values():
                if number in worker.jobs:
                    cancel = message["kind"] == "cancel"
                    worker.jobs[number].cancelled = worker.jobs[number].cancelled or cancel
                    self._fleet.call(worker.number, message["kind"], number)

    def from_worker(self, number: int, message: Mapping[str, Any]) -> None:
        """Note what a worker tells; of those that were given up nothing counts."""
        worker = next((one for one in self._workers.values() if one.number == number), None)
        if worker is None or worker.state not in {"starting", "ready"}:
            return
        if message["kind"] == "hello":
            self._welcome(worker, message)
        elif message["kind"] == "lost":
            self._lose(worker, message["why"])
        else:
            self._note(worker, message["state"])
            for event in message["events"]:
                self._about_job(worker, event)

    def tick(self) -> None:
        """Start workers where some are missing, hand out jobs, and tell how things are."""
        now = time.monotonic()
        if self._waiting and now - self._looked_s > _LOOK_S:
            self._looked_s = now
            self._look()
        for worker in self._of("starting"):
            if now - worker.since_s > self._start_timeout_s:
                self._lose(
                    worker,
                    f"it was not there after {self._start_timeout_s:g} s; its device may be in use",
                )
        self._assign()
        self._show()

    # ---- jobs ----------------------------------------------------------------------------------

    def _assign(self) -> None:
        starting = [one for one in self._of("starting") if _age(one) < _GRACE_S]
        # While others are on their way, nobody takes what they could begin with.
        most = 1 if starting else self._most_jobs
        for job in sorted(self._waiting.values(), key=lambda one: (-one.priority, one.number)):
            ready = {worker.name: worker for worker in self._of("ready")}
            if ready and all(len(worker.jobs) >= most for worker in ready.values()):
                return
            views = [_view(worker, job) for worker in ready.values()]
            if starting and all(view.refusal for view in views):
                continue
            try:
                if not ready and not self._of("starting"):
                    raise self._nobody()
                name = choose_worker(views, job.model, most)
            except InlineError as error:
                del self._waiting[job.number]
                self._tell(_failure(job, error))
                continue
            if name is not None:
                self._hand_over(job, ready[name])

    def _hand_over(self, job: _Job, worker: _Worker) -> None:
        del self._waiting[job.number]
        job.tries += 1
        worker.jobs[job.number] = job
        self._fleet.call(worker.number, "take", job.number, job.body, job.blobs)

    def _about_job(self, worker: _Worker, event: Mapping[str, Any]) -> None:
        job = worker.jobs.get(event["number"])
        if job is None:
            return
        kind = event["kind"]
        if kind == "refused":
            del worker.jobs[job.number]
            job.tries -= 1
            needs, has = event["needed_bytes"], event["available_bytes"]
            job.refusals[worker.name] = Refusal(event["code"], event["message"], needs, has)
            self._waiting[job.number] = job
            return
        notes = []
        if kind in {"result", "error", "cancelled"}:
            del worker.jobs[job.number]
            worker.done += kind == "result"
            notes = [f"Passed over {name}: {one.message}" for name, one in job.refusals.items()]
            self._show()
        self._tell({**event, "worker": worker.in_words, "notes": notes})

    # ---- workers -------------------------------------------------------------------------------

    def _look(self) -> None:
        """Start what is missing; places that are gone are forgotten when their worker is lost."""
        slots = {slot.key: slot for slot in self._fleet.slots()}
        for key, worker in list(self._workers.items()):
            if key not in slots and worker.state not in {"starting", "ready"}:
                del self._workers[key]
        for key, slot in slots.items():
            if key not in self._workers:
                place = self._free_place()
                self._workers[key] = _Worker(f"worker-{place + 1}", place, slot)
            worker = self._workers[key]
            if worker.state == "lost":
                worker.number = self._fleet.start(slot, worker.name, worker.place)
                worker.state, worker.since_s = "starting", time.monotonic()

    def _free_place(self) -> int:
        taken = {worker.place for worker in self._workers.values()}
        return next(place for place in range(len(taken) + 1) if place not in taken)

    def _welcome(self, worker: _Worker, hello: Mapping[str, Any]) -> None:
        worker.pid, worker.device = hello["pid"], hello["device"]
        other = differing(self._versions, hello["versions"])
        if other:
            self._fleet.end(worker.number)
            worker.state, worker.why, worker.since_s = "unused", other, time.monotonic()
            return
        worker.state, worker.why, worker.since_s = "ready", "", time.monotonic()
        self._note(worker, hello["state"])

    def _note(self, worker: _Worker, state: Mapping[str, Any]) -> None:
        worker.free_bytes, worker.loaded = state["free_bytes"], frozenset(state["models"])

    def _lose(self, worker: _Worker, why: str) -> None:
        """Begin its jobs once more elsewhere, or fail those that were begun twice."""
        name, began = worker.in_words, worker.state == "ready"
        self._fleet.end(worker.number)
        # One that never came is not tried again for every job that waits.
        worker.state = "lost" if began else "unused"
        worker.why, worker.since_s = why, time.monotonic()
        worker.lost += 1
        worker.loaded, worker.free_bytes, worker.pid = frozenset(), 0, 0
        lost, worker.jobs = worker.jobs, {}
        self._looked_s = float("-inf")
        for job in lost.values():
            job.refusals.pop(worker.name, None)
            if job.cancelled:
                self._tell({"kind": "cancelled", "number": job.number})
            elif job.tries < _TRIES:
                self._waiting[job.number] = job
            else:
                message = f"{name} was lost ({why}), and the one that began the job before"
                self._tell(_failure(job, WorkerLost(message)))

    def _forgive(self) -> None:
        """With a new job try failed workers again: all if nobody is there, else now and then."""
        nobody = not self._of("ready") and not self._of("starting")
        for worker in self._of("unused"):
            if nobody or _age(worker) > _AGAIN_S:
                worker.state = "lost"

    def _nobody(self) -> WorkerLost:
        reasons = "; ".join(f"{one.in_words}: {one.why}" for one in self._workers.values())
        if not reasons:
            message = "The Ray cluster has no node that can make pictures (no GPU, no processor)"
            return WorkerLost(message)
        return WorkerLost(f"No worker of the Ray cluster can be used. {reasons}")

    def _of(self, state: str) -> list[_Worker]:
        return [worker for worker in self._workers.values() if worker.state == state]

    def _show(self) -> None:
        stats = {
            "waiting": len(self._waiting),
            "active": sum(len(worker.jobs) for worker in self._workers.values()),
            "lost": sum(worker.lost for worker in self._workers.values()),
            "workers": [
                {
                    "name": worker.name,
                    "node": worker.slot.host,
                    "pid": worker.pid,
                    "state": worker.state,
                    "why": worker.why,
                    "device": worker.device,
                    "freeBytes": worker.free_bytes,
                    "models": sorted(worker.loaded),
                    "active": len(worker.jobs),
                    "jobs": worker.done,
                    "lost": worker.lost,
                }
                for worker in self._workers.values()
            ],
        }
        now = time.monotonic()
        # Now and then also as a sign of life.
        if stats != self._stats or now - self._shown_s > _BEAT_S:
            self._stats, self._shown_s = stats, now
            self._tell({"kind": "stats", "stats": stats})


def _view(worker: _Worker, job: _Job) -> WorkerView:
    models = worker.loaded | {one.model for one in worker.jobs.values()}
    return WorkerView(
        worker.name,
        worker.slot.host,
        len(worker.jobs),
        worker.free_bytes,
        models,
        job.refusals.get(worker.name),
    )


def _failure(job: _Job, error: InlineError) -> dict[str, Any]:
    return {
        "kind": "error",
        "number": job.number,
        "code": error.code,
        "message": error.message,
        "worker": "",
        "notes": [],
    }


def _age(worker: _Worker) -> float:
    return time.monotonic() - worker.since_s
