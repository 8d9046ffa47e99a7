"""The actors of a Ray cluster: where there is room for them, started, called and listened to.

The only module that speaks to Ray, in a process of its own: Ray ends the process that uses it when
the cluster stays away (see `docs/decisions/0016-ray-for-whole-jobs.md`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inline_core.engine.cluster_worker import ClusterWorker
from inline_core.errors import WorkerLost
from inline_core.sampling.backends.ray_placement import Slot, plan_slots

_STORE_BYTES: Final = 512 * 1024 * 1024
_ANSWER_S: Final = 5.0
_POLL_S: Final = 1.0
# An actor that does not answer for so long is taken for stalled.
_PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class ClusterOrder:
    """What the server wants: which cluster, and how its workers are made.

    `settings` are the server's.  `workers` (0: as many as there are devices) and `overrides` of
    the settings of each are for tests, `folder` is where an embedded cluster keeps its files.
    """

    address: str
    settings: Mapping[str, Any]
    workers: int
    overrides: tuple[Mapping[str, Any], ...]
    folder: str


class Fleet:
    """Workers by number; `inbox` gets (number, message) for all that they tell."""

    def __init__(self, order: ClusterOrder, inbox: queue.SimpleQueue[tuple[int, Any]]) -> None:
        self._order = order
        self._inbox = inbox
        self._numbers = itertools.count(1)
        self._actors: dict[int, Any] = {}
        self._gpus = order.settings.get("profile") != "cpu"

    def connect(self) -> None:
        """Join the cluster, or start one here.  Main thread.

        Raises: WorkerLost if it cannot be reached; Ray may end the process instead.
        """
        address = self._order.address
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        # Else a driver waits a minute for a lost cluster before it gives up.
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "20")
        _knock(address)
        quiet: dict[str, Any] = {"log_to_driver": False}
        if address == "local":
            # Workers are what this machine is for; Ray would put them behind everything else.
            os.environ.setdefault("RAY_worker_niceness", "0")
            quiet |= {
                "include_dashboard": False,
                "num_cpus": max(self._order.workers, 1),
                "num_gpus": None if self._gpus else 0,
                "object_store_memory": _STORE_BYTES,
                "_temp_dir": self._order.folder,
            }
        import ray

        try:
            ray.init(address=address, **quiet)
        except Exception as error:
            message = (
                f"The Ray cluster at INLINE_RAY_ADDRESS={address} cannot be used: "
                f"{' '.join(str(error).split())[:400]}"
            )
            raise WorkerLost(message) from error

    def slots(self) -> tuple[Slot, ...]:
        """Places for workers in the cluster as it is now."""
        import ray

        return plan_slots(ray.nodes(), gpus=self._gpus, most=self._order.workers)

    def start(self, slot: Slot, name: str, place: int) -> int:
        """Make the actor of a slot, the `place`th of all; gives its number."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        changes = self._order.overrides[place : place + 1]
        settings = {**self._order.settings, **(changes[0] if changes else {})}
        kept_free = ray.remote(concurrency_groups={"events": 1, "control": 2})
        made = kept_free(ClusterWorker).options(
            num_cpus=0 if slot.gpu else 1 / slot.shared_by,
            num_gpus=1 if slot.gpu else 0,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=4,
            scheduling_strategy=NodeAffinitySchedulingStrategy(slot.node_id, soft=False),
        )
        number = next(self._numbers)
        actor = self._actors[number] = made.remote(settings, name, slot.shared_by)
        threading.Thread(
            target=self._listen, args=(number, actor), name=f"listen-{name}", daemon=True
        ).start()
        return number

    def call(self, number: int, method: str, *values: Any) -> None:
        """Call a method of a worker, which answers by its events; a lost one is told as such."""
        actor = self._actors.get(number)
        if actor is None:
            return
        asked = getattr(actor, method)
        if method != "take":
            # Beside jobs that are being taken, and may wait for torch.
            asked = asked.options(concurrency_group="control")
        # Whatever goes wrong with the actor is seen by who listens to it.
        with contextlib.suppress(Exception):
            asked.remote(*values)

    def end(self, number: int) -> None:
        """End a worker's process at once."""
        import ray

        actor = self._actors.pop(number, None)
        if actor is not None:
            with contextlib.suppress(Exception):
                ray.kill(actor)

    def close(self) -> None:
        """End every worker, leave the cluster, and end it if it was started here."""
        import ray

        for number in list(self._actors):
            self.end(number)
        ray.shutdown()

    def _listen(self, number: int, actor: Any) -> None:
        """Pass on what one worker tells until it is lost."""
        import ray

        try:
            self._inbox.put((number, {"kind": "hello", **ray.get(actor.hello.remote())}))
            after = 0
            while True:
                asked = actor.events.options(concurrency_group="events").remote(after, _POLL_S)
                told = ray.get(asked, timeout=_PATIENCE_S)
                after = told["last"]
                self._inbox.put((number, {"kind": "told", **told}))
        except ray.exceptions.GetTimeoutError:
            words = f"it did not answer for {_PATIENCE_S:g} s"
        except Exception as error:  # noqa: BLE001 - the border to Ray: a lost worker, in its words
            words = _reason(error)
        self._inbox.put((number, {"kind": "lost", "why": words}))


def _knock(address: str) -> None:
    """See that somebody listens: Ray itself waits for over a minute.  Raises: WorkerLost."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]") or "127.0.0.1", int(port)), _ANSWER_S).close()
    except OSError as error:
        message = (
            f"The Ray cluster at INLINE_RAY_ADDRESS={address} cannot be reached ({error}): start "
            "it there with `ray start --head`, or correct the address"
        )
        raise WorkerLost(message) from error


def _reason(error: Exception) -> str:
    """The line of Ray's report that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error:" in line or "died" in line or "exit" in line]
    return (told or lines or [type(error).__name__])[-1][:300]
