from __future__ import annotations

import pytest

from inline_core.errors import OutOfMemory
from inline_core.loading.pool import ComponentPool


class Memory:
    """A device with so many bytes; what the pool drops comes back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pool: ComponentPool | None = None

    def room(self) -> int:
        assert self.pool is not None
        return self.size - int(self.pool.stats()["bytesHeld"])


def pool_of(size: int, *, keep_warm: bool = True) -> ComponentPool:
    memory = Memory(size)
    ticks = iter(range(10_000))
    pool = ComponentPool(memory.room, keep_warm=keep_warm, clock=lambda: float(next(ticks)))
    memory.pool = pool
    return pool


def held(pool: ComponentPool) -> list[str]:
    return [item["name"] for item in pool.stats()["held"]]


def test_equal_keys_share_one_load() -> None:
    pool = pool_of(100)
    loads: list[int] = []

    def load() -> object:
        loads.append(1)
        return object()

    with pool.lease("a", "a", 10, load) as one, pool.lease("a", "a", 10, load) as two:
        assert one is two
    assert len(loads) == 1
    stats = pool.stats()
    assert (stats["hits"], stats["misses"], stats["bytesHeld"]) == (1, 1, 10)


def test_the_oldest_free_one_goes_before_a_load_that_would_not_fit() -> None:
    pool = pool_of(100)
    pool.lease("a", "a", 40, object).release()
    pool.lease("b", "b", 40, object).release()
    pool.lease("a", "a", 40, object).release()
    seen: list[list[str]] = []
    pool.lease("c", "c", 40, lambda: seen.append(held(pool))).release()
    assert seen == [["a"]]
    assert held(pool) == ["a", "c"]
    assert pool.stats()["evictionReasons"] == {"room": 1}


def test_what_is_leased_stays_and_the_numbers_are_told() -> None:
    pool = pool_of(100)
    lease = pool.lease("a", "a", 80, object)
    with pytest.raises(OutOfMemory, match="b needs 40 bytes, 20 bytes available"):
        pool.lease("b", "b", 40, object)
    assert pool.free() == 0
    lease.release()
    lease.release()
    pool.lease("b", "b", 40, object).release()
    assert held(pool) == ["b"]


def test_a_load_that_fails_leaves_nothing_behind() -> None:
    pool = pool_of(100)

    def fail() -> object:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - its own class, raised above
        pool.lease("a", "a", 10, fail)
    assert held(pool) == []


def test_free_idle_and_cold() -> None:
    pool = pool_of(100)
    pool.lease("a", "a", 10, object).release()
    assert pool.drop_idle(1000) == 0
    assert pool.drop_idle(0) == 10
    pool.lease("a", "a", 10, object).release()
    assert pool.free() == 10
    cold = pool_of(100, keep_warm=False)
    cold.lease("a", "a", 10, object).release()
    assert held(cold) == []
