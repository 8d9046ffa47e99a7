"""Which worker of a cluster a job goes to: pure rules over what the workers have told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from inline_core.errors import DoesNotFit, InlineError, error_of


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a worker cannot do a job; the bytes are those of a plan that does not fit."""

    code: str
    message: str
    needed_bytes: int = 0
    available_bytes: int = 0


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as a job sees it.

    `jobs` are those it has and has not finished; `models` are loaded, or will be for these jobs.
    `free_bytes` is memory that a new model may take on its device.  `refusal` is what it has
    answered to this job.
    """

    name: str
    node: str
    jobs: int = 0
    free_bytes: int = 0
    models: frozenset[str] = frozenset()
    refusal: Refusal | None = None

    @property
    def in_words(self) -> str:
        """How messages name it."""
        return f"{self.name} on {self.node}"


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one worker in the cluster: the `index`th of a node."""

    node_id: str
    host: str
    index: int
    gpu: bool
    shared_by: int = 1

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from others."""
        return (self.node_id, self.index)


# What speaks against a worker, but not against the job.
_OF_THE_MACHINE: Final = frozenset({"model_missing", "model_invalid"})


def choose_worker(workers: Sequence[WorkerView], model: str, most_jobs: int) -> str | None:
    """The name of the worker that a job with `model` goes to; None while all have enough to do.

    A worker that has the model is best while no other has less to do; of the others the one with
    the most free memory.
    Raises: DoesNotFit naming the best worker if all have refused, or what else they have said.
    """
    able = [worker for worker in workers if worker.refusal is None]
    if workers and not able:
        raise refused_by_all(workers)
    free = [worker for worker in able if worker.jobs < most_jobs]
    if not free:
        return None

    def order(worker: WorkerView) -> tuple[int, bool, int, str]:
        return (worker.jobs, model not in worker.models, -worker.free_bytes, worker.name)

    return min(free, key=order).name


def refused_by_all(workers: Sequence[WorkerView]) -> InlineError:
    """The error of a job that no worker can do: where it came closest, else what each one lacks."""
    told = [(worker, worker.refusal) for worker in workers if worker.refusal is not None]
    small = [pair for pair in told if pair[1].code == DoesNotFit.code]
    if small:
        worker, best = max(small, key=lambda pair: (pair[1].available_bytes, pair[0].name))
        message = (
            f"It fits on no worker of the cluster. The one with the most room, "
            f"{worker.in_words}: {best.message}"
        )
        return DoesNotFit(
            message,
            details={"neededBytes": best.needed_bytes, "availableBytes": best.available_bytes},
        )
    words = "; ".join(f"{worker.in_words}: {refusal.message}" for worker, refusal in told)
    hint = ""
    if all(refusal.code in _OF_THE_MACHINE for _, refusal in told):
        hint = ". Every machine needs the same model files at the same path, with the same times"
    return error_of(told[0][1].code, words + hint)


def plan_slots(nodes: Sequence[Mapping[str, object]], *, gpus: bool, most: int) -> tuple[Slot, ...]:
    """One place for each GPU of the nodes that are alive; without any GPU one for each node.

    `nodes` are as Ray tells them.  `gpus` False counts processors only; `most` (0: no limit) puts
    so many on each node without GPUs.
    """
    alive = [node for node in nodes if node.get("Alive")]
    cards = {str(node["NodeID"]): int(_amount(node, "GPU")) if gpus else 0 for node in alive}
    found: list[Slot] = []
    for node in sorted(alive, key=lambda one: str(one["NodeID"])):
        node_id, host = str(node["NodeID"]), str(node.get("NodeManagerHostname", ""))
        if any(cards.values()):
            count, gpu = cards[node_id], True
        else:
            # A node without processors only lets a server join the cluster.
            count, gpu = (max(most, 1), False) if _amount(node, "CPU") else (0, False)
        found += [Slot(node_id, host, index, gpu, count) for index in range(count)]
    return tuple(found)


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """In words which releases of a worker are others than the server's; "" if none that matters.

    The build of a release ("+cpu", "+cu130") may differ: a server needs no GPU of its own.
    """
    other = {
        name: (theirs.get(name, "not installed"), mine)
        for name, mine in ours.items()
        if theirs.get(name, "not installed").partition("+")[0] != mine.partition("+")[0]
    }
    if not other:
        return ""
    there = ", ".join(f"{name} {found}" for name, (found, _) in other.items())
    here = ", ".join(f"{name} {mine}" for name, (_, mine) in other.items())
    return f"it runs {there}, the server {here}: install the same releases on all machines"


def _amount(node: Mapping[str, object], resource: str) -> float:
    resources = node.get("Resources")
    if not isinstance(resources, Mapping):
        return 0.0
    return float(resources.get(resource, 0.0))
