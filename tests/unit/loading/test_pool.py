from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from inline_core.devices.policy import Room
from inline_core.errors import OutOfMemory
from inline_core.loading.pool import ComponentPool


class Memory:
    """A device with so many bytes; what the pool drops comes back."""

    def __init__(self, size: int) -> None:
        self.size = size

    def room(self, held: Room) -> Room:
        return Room(0, self.size - held.host_bytes)


def pool_of(size: int, *, keep_bytes: int | None = None) -> ComponentPool:
    ticks = iter(range(10_000))
    return ComponentPool(Memory(size).room, keep_bytes=keep_bytes, clock=lambda: float(next(ticks)))


def held(pool: ComponentPool) -> list[str]:
    return [item["name"] for item in pool.stats()["held"]]


def test_equal_keys_share_one_load() -> None:
    pool = pool_of(100)
    loads: list[int] = []

    def load() -> object:
        loads.append(1)
        return object()

    with (
        pool.lease("a", "a", Room(0, 10), load) as one,
        pool.lease("a", "a", Room(0, 10), load) as two,
    ):
        assert one is two
    assert len(loads) == 1
    stats = pool.stats()
    assert (stats["hits"], stats["misses"], stats["bytesHeld"]) == (1, 1, 10)


def test_the_oldest_free_one_goes_before_a_load_that_would_not_fit() -> None:
    pool = pool_of(100)
    pool.lease("a", "a", Room(0, 40), object).release()
    pool.lease("b", "b", Room(0, 40), object).release()
    pool.lease("a", "a", Room(0, 40), object).release()
    seen: list[list[str]] = []
    pool.lease("c", "c", Room(0, 40), lambda: seen.append(held(pool))).release()
    assert seen == [["a"]]
    assert held(pool) == ["a", "c"]
    assert pool.stats()["evictionReasons"] == {"room": 1}


def test_what_is_leased_stays_and_the_numbers_are_told() -> None:
    pool = pool_of(100)
    lease = pool.lease("a", "a", Room(0, 80), object)
    with pytest.raises(OutOfMemory, match="b needs 40 bytes of host memory, 20 bytes available"):
        pool.lease("b", "b", Room(0, 40), object)
    assert pool.free() == 0
    lease.release()
    lease.release()
    pool.lease("b", "b", Room(0, 40), object).release()
    assert held(pool) == ["b"]


def test_a_load_that_fails_leaves_nothing_behind() -> None:
    pool = pool_of(100)

    def fail() -> object:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - its own class, raised above
        pool.lease("a", "a", Room(0, 10), fail)
    assert held(pool) == []


def test_free_idle_and_cold() -> None:
    pool = pool_of(100)
    pool.lease("a", "a", Room(0, 10), object).release()
    assert pool.drop_idle(1000) == 0
    assert pool.drop_idle(0) == 10
    pool.lease("a", "a", Room(0, 10), object).release()
    assert pool.free() == 10
    cold = pool_of(100, keep_bytes=0)
    cold.lease("a", "a", Room(0, 10), object).release()
    assert held(cold) == []


def test_what_is_kept_unused_has_a_budget() -> None:
    pool = pool_of(100, keep_bytes=50)
    leases = [pool.lease(name, name, Room(0, 30), object) for name in "abc"]
    assert held(pool) == ["a", "b", "c"]  # in use, whatever the budget says
    for lease in leases:
        lease.release()
    assert held(pool) == ["c"]
    stats = pool.stats()
    assert stats["evictionReasons"] == {"keep_resident": 2}
    assert [(gone["name"], gone["why"]) for gone in stats["recentEvictions"]] == [
        ("a", "keep_resident"),
        ("b", "keep_resident"),
    ]


def test_device_and_host_are_counted_apart() -> None:
    pool = ComponentPool(lambda held: Room(100 - held.device_bytes, 50 - held.host_bytes))
    pool.lease("streamed", "streamed", Room(10, 40), object).release()
    lease = pool.lease("resident", "resident", Room(90, 0), object)
    assert held(pool) == ["streamed", "resident"]
    lease.release()
    # Only host memory is short now; the oldest goes first, and that is enough.
    pool.lease("other", "other", Room(0, 30), object)
    assert held(pool) == ["resident", "other"]
    assert pool.held() == Room(90, 30)
    with pytest.raises(OutOfMemory, match="big needs 500 bytes of device memory"):
        pool.lease("big", "big", Room(500, 0), object)


def test_two_threads_load_the_same_once_and_nobody_else_waits() -> None:
    pool = pool_of(100)
    started, gate = threading.Event(), threading.Event()
    loads: list[int] = []

    def slow() -> object:
        loads.append(1)
        started.set()
        gate.wait(20)
        return object()

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(pool.lease, "a", "a", Room(0, 60), slow)
        assert started.wait(20)
        second = threads.submit(pool.lease, "a", "a", Room(0, 60), slow)
        # Another one is leased and given back while the first is being read, and room is counted.
        pool.lease("b", "b", Room(0, 30), object).release()
        with pytest.raises(OutOfMemory):
            pool.lease("c", "c", Room(0, 50), object)
        gate.set()
        one, two = first.result(20), second.result(20)
    assert one.value is two.value
    assert len(loads) == 1


def test_who_waited_for_a_load_that_failed_loads_itself() -> None:
    pool = pool_of(100)
    started, gate = threading.Event(), threading.Event()

    def fail() -> object:
        started.set()
        gate.wait(20)
        raise ValueError

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(pool.lease, "a", "a", Room(0, 60), fail)
        assert started.wait(20)
        second = threads.submit(pool.lease, "a", "a", Room(0, 60), object)
        gate.set()
        with pytest.raises(ValueError):  # noqa: PT011 - its own class, raised above
            first.result(20)
        assert second.result(20).value is not None
