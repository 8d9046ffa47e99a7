"""The settings for a cluster, and how its workers are managed, without Ray."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from inline_core.engine.cluster import check_cluster, with_cluster
from inline_core.engine.cluster_dispatch import Dispatcher
from inline_core.errors import InvalidRequest, RuntimeMissing
from inline_core.sampling.backends.ray_placement import Slot
from inline_core.settings import Settings

VERSIONS = {"inline-core": "1", "torch": "2"}
STATE = {"free_bytes": 10, "models": []}


class ScriptedWorkers:
    """Places for workers, and what was asked of them."""

    def __init__(self, *slots: Slot) -> None:
        self.places = slots
        self.started: list[str] = []
        self.asked: list[tuple[int, str, int]] = []
        self.ended: list[int] = []

    def slots(self) -> tuple[Slot, ...]:
        return self.places

    def start(self, slot: Slot, name: str, place: int) -> int:
        self.started.append(name)
        return len(self.started)

    def call(self, number: int, method: str, *values: Any) -> None:
        self.asked.append((number, method, values[0]))

    def end(self, number: int) -> None:
        self.ended.append(number)


class Desk:
    """A dispatcher, and what it has told the server."""

    def __init__(self, *slots: Slot, most_jobs: int = 3, start_timeout_s: float = 60) -> None:
        self.fleet = ScriptedWorkers(*slots)
        self.said: list[dict[str, Any]] = []
        self.dispatcher = Dispatcher(
            self.fleet, self.said.append, VERSIONS, most_jobs, start_timeout_s
        )

    def job(self, number: int, **changes: Any) -> None:
        values = {"model": "z", "priority": 0, "body": b"", "blobs": []} | changes
        self.dispatcher.from_server({"kind": "job", "number": number, **values})
        self.dispatcher.tick()

    def hello(self, number: int, versions: dict[str, str] | None = None) -> None:
        self.tell(
            number, kind="hello", pid=1000 + number, device="cpu", state=STATE,
            versions=VERSIONS if versions is None else versions,
        )  # fmt: skip

    def tell(self, number: int, **message: Any) -> None:
        self.dispatcher.from_worker(number, message)
        self.dispatcher.tick()

    def event(self, worker: int, **event: Any) -> None:
        self.tell(worker, kind="told", state=STATE, events=[event])

    def errors(self) -> list[tuple[int, str, str]]:
        return [
            (one["number"], one["code"], one["message"])
            for one in self.said
            if one["kind"] == "error"
        ]


A, B = Slot("a", "ant", 0, gpu=False), Slot("b", "bee", 0, gpu=False)


def test_jobs_are_spread_before_a_worker_gets_a_second_one() -> None:
    desk = Desk(A, B)
    desk.job(1)
    desk.job(2)
    assert desk.fleet.started == ["worker-1", "worker-2"]
    desk.hello(1)
    # The other one is on its way: it has the second job.
    assert desk.fleet.asked == [(1, "take", 1)]
    desk.hello(2)
    assert desk.fleet.asked == [(1, "take", 1), (2, "take", 2)]


def test_a_higher_priority_goes_first_and_no_worker_is_overfilled() -> None:
    desk = Desk(A, most_jobs=2)
    for number in (1, 2):
        desk.job(number)
    desk.job(3, priority=5)
    desk.hello(1)
    assert [number for _, _, number in desk.fleet.asked] == [3, 1]
    desk.event(1, kind="result", number=3)
    assert [number for _, _, number in desk.fleet.asked] == [3, 1, 2]


def test_a_waiting_job_is_cancelled_at_once_a_running_one_by_its_worker() -> None:
    desk = Desk(A, most_jobs=1)
    desk.job(1)
    desk.job(2)
    desk.hello(1)
    for number in (1, 2):
        desk.dispatcher.from_server({"kind": "cancel", "number": number})
    assert {"kind": "cancelled", "number": 2} in desk.said
    assert desk.fleet.asked[-1] == (1, "cancel", 1)
    # A cancelled one is not begun again when its worker is lost.
    desk.tell(1, kind="lost", why="killed")
    assert {"kind": "cancelled", "number": 1} in desk.said


def test_another_release_is_not_used_and_told_in_words() -> None:
    desk = Desk(A)
    desk.job(1)
    desk.hello(1, {"inline-core": "1", "torch": "3"})
    assert desk.fleet.ended == [1]
    [(number, code, message)] = desk.errors()
    assert (number, code) == (1, "worker_lost")
    assert "worker-1 on ant" in message
    assert "it runs torch 3, the server torch 2" in message
    # Somebody may have installed the right one by the next job.
    desk.job(2)
    desk.hello(2)
    assert desk.fleet.asked == [(2, "take", 2)]


def test_what_never_comes_is_given_up() -> None:
    desk = Desk(A, start_timeout_s=0)
    desk.job(1)
    desk.dispatcher.tick()
    [(_, code, message)] = desk.errors()
    assert code == "worker_lost"
    assert "was not there after 0 s" in message


def test_a_lost_worker_is_replaced_and_its_job_fails_only_the_second_time() -> None:
    desk = Desk(A)
    desk.job(1)
    desk.hello(1)
    desk.tell(1, kind="lost", why="killed")
    assert not desk.errors()
    assert desk.fleet.started == ["worker-1", "worker-1"]
    desk.hello(2)
    assert desk.fleet.asked[-1] == (2, "take", 1)
    desk.tell(2, kind="lost", why="killed again")
    [(_, code, message)] = desk.errors()
    assert code == "worker_lost"
    assert "worker-1 on ant (process 1002) was lost (killed again)" in message
    # Nothing of those that are gone counts any more.
    desk.event(1, kind="result", number=1)
    assert not [one for one in desk.said if one["kind"] == "result"]


def test_a_refusal_goes_elsewhere_and_is_told_with_the_result() -> None:
    desk = Desk(A, B)
    desk.job(1)
    desk.hello(1)
    desk.hello(2)
    desk.event(
        1, kind="refused", number=1, code="model_missing", message="z is not there",
        needed_bytes=0, available_bytes=0,
    )  # fmt: skip
    assert desk.fleet.asked == [(1, "take", 1), (2, "take", 1)]
    desk.event(2, kind="result", number=1)
    told = desk.said[-1]
    assert told["notes"] == ["Passed over worker-1: z is not there"]
    assert told["worker"] == "worker-2 on bee (process 1002)"


def test_a_cluster_without_places_says_so() -> None:
    desk = Desk()
    desk.job(1)
    [(_, code, message)] = desk.errors()
    assert code == "worker_lost"
    assert "no GPU, no processor" in message


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"parallel": "auto"}, "INLINE_PARALLEL"),
        ({"parallel": "ulysses=2"}, "INLINE_PARALLEL"),
        ({"multi_gpu": True}, "INLINE_MULTI_GPU"),
    ],
)
def test_a_cluster_and_a_split_are_refused_together(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"INLINE_RAY_ADDRESS .* {name} .*unset one"):
        check_cluster(Settings(ray_address="auto", **changes))
    check_cluster(Settings(**changes))


def test_a_cluster_alone_is_fine() -> None:
    check_cluster(Settings(ray_address="auto"))
    check_cluster(Settings(ray_address="10.0.0.1:6379", parallel="off"))


def test_without_ray_the_install_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RuntimeMissing, match=r"needs ray: pip install \"inline-core\[cluster\]\""):
        with_cluster(Settings(ray_address="auto"))


def test_the_server_never_imports_ray() -> None:
    code = (
        "import sys, inline_core.server.services, inline_core.engine.cluster as cluster\n"
        "from inline_core.settings import Settings\n"
        "cluster.with_cluster(Settings(ray_address='auto'))\n"
        "sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
