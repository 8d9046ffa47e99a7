"""Loaded components: shared while equal, kept warm while there is room, dropped oldest first."""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar

from inline_core.devices.policy import Room
from inline_core.errors import OutOfMemory
from inline_core.loading.header import size_in_words

T = TypeVar("T")
Why = Literal["room", "keep_resident", "not_kept_warm", "idle", "asked", "out_of_memory"]

_EVICTIONS_SHOWN: Final = 20


@dataclass(slots=True)
class _Held:
    """One loaded component."""

    value: Any
    size: Room
    label: str
    leases: int = 0
    used_s: float = 0.0


@dataclass(slots=True)
class PoolCounts:
    """Counters since the start."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    bytes_loaded: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


class Lease(Generic[T]):
    """A component in use; it is not dropped before `release`, which may be called twice."""

    def __init__(self, value: T, release: Callable[[], None]) -> None:
        self.value = value
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """Give it back."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> T:
        return self.value

    def __exit__(self, *_: object) -> None:
        self.release()


class ComponentPool:
    """Holds components by key.  Any thread may use it; two that want the same load it once.

    `room` says how much a new component may take now, given what is held; `after_drop` gives
    memory back to the device.  Components that nobody leases stay up to `keep_bytes` (None: while
    there is room; 0: not at all), least recently used first to go.
    """

    def __init__(
        self,
        room: Callable[[Room], Room],
        *,
        keep_bytes: int | None = None,
        after_drop: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._room = room
        self._keep_bytes = keep_bytes
        self._after_drop = after_drop
        self._clock = clock
        self._lock = threading.RLock()
        self._loaded = threading.Condition(self._lock)
        self._loading: dict[Hashable, Room] = {}
        self._held: dict[Hashable, _Held] = {}
        self._counts = PoolCounts()
        self._evicted: deque[dict[str, Any]] = deque(maxlen=_EVICTIONS_SHOWN)

    def lease(self, key: Hashable, label: str, size: Room, load: Callable[[], T]) -> Lease[T]:
        """The component `key`, loaded with `load` if it is not there.

        What is oldest and not leased is dropped *before* a load that would not fit.
        Raises: OutOfMemory with the numbers if it cannot fit, and whatever `load` raises.
        """
        with self._lock:
            self._loaded.wait_for(lambda: key not in self._loading)
            held = self._held.get(key)
            if held is not None:
                self._counts.hits += 1
                return self._leased(held)
            self._counts.misses += 1
            self._make_room(label, size)
            self._loading[key] = size
        try:
            # Not under the lock: others may lease and give back while this one is read.
            held = _Held(load(), size, label)
        except BaseException:
            with self._lock:
                del self._loading[key]
                self._loaded.notify_all()
            raise
        with self._lock:
            del self._loading[key]
            self._held[key] = held
            self._counts.bytes_loaded += _total(size)
            self._loaded.notify_all()
            return self._leased(held)

    def _leased(self, held: _Held) -> Lease[Any]:
        held.leases += 1
        held.used_s = self._clock()

        def release() -> None:
            with self._lock:
                held.leases -= 1
                held.used_s = self._clock()
                self._keep_within_budget()

        return Lease(held.value, release)

    def held(self) -> Room:
        """What all components take that are loaded, or being loaded."""
        with self._lock:
            sizes = [held.size for held in self._held.values()]
            sizes += self._loading.values()
        return Room(
            sum(size.device_bytes for size in sizes), sum(size.host_bytes for size in sizes)
        )

    def free(self, why: Why = "asked") -> int:
        """Drop everything that is not leased; gives the bytes freed."""
        with self._lock:
            return self._drop(self._unleased(), why)

    def drop_idle(self, older_than_s: float) -> int:
        """Drop what nobody has used for so long; gives the bytes freed."""
        limit = self._clock() - older_than_s
        with self._lock:
            old = [key for key in self._unleased() if self._held[key].used_s <= limit]
            return self._drop(old, "idle")

    def stats(self) -> dict[str, Any]:
        """Counters and what is loaded, for `/v1/health`."""
        with self._lock:
            held = list(self._held.values())
        counts = self._counts
        return {
            "hits": counts.hits,
            "misses": counts.misses,
            "evictions": counts.evictions,
            "evictionReasons": dict(counts.reasons),
            "bytesLoaded": counts.bytes_loaded,
            "bytesHeld": sum(_total(item.size) for item in held),
            "keepBytes": self._keep_bytes,
            "held": [
                {
                    "name": item.label,
                    "bytes": _total(item.size),
                    "deviceBytes": item.size.device_bytes,
                    "leases": item.leases,
                }
                for item in held
            ],
            "recentEvictions": list(self._evicted),
        }

    def _unleased(self) -> list[Hashable]:
        """Keys nobody leases, least recently used first."""
        keys = [key for key, held in self._held.items() if held.leases == 0]
        return sorted(keys, key=lambda key: self._held[key].used_s)

    def _keep_within_budget(self) -> None:
        if self._keep_bytes is None:
            return
        why: Why = "keep_resident" if self._keep_bytes else "not_kept_warm"
        idle = self._unleased()
        kept = sum(_total(self._held[key].size) for key in idle)
        for key in idle:
            if kept <= self._keep_bytes:
                return
            kept -= _total(self._held[key].size)
            self._drop([key], why)

    def _make_room(self, label: str, size: Room) -> None:
        for key in self._unleased():
            if _fits(size, self._room(self.held())):
                return
            self._drop([key], "room")
        room = self._room(self.held())
        if _fits(size, room):
            return
        device = size.device_bytes > room.device_bytes
        needs = size.device_bytes if device else size.host_bytes
        has = room.device_bytes if device else room.host_bytes
        message = (
            f"{label} needs {size_in_words(needs)} of {'device' if device else 'host'} memory, "
            f"{size_in_words(has)} available: close other programs or use a smaller model"
        )
        raise OutOfMemory(message, details={"neededBytes": needs, "freeBytes": has})

    def _drop(self, keys: list[Hashable], why: Why) -> int:
        freed = 0
        for key in keys:
            gone = self._held.pop(key)
            freed += _total(gone.size)
            self._counts.evictions += 1
            self._counts.reasons[why] = self._counts.reasons.get(why, 0) + 1
            self._evicted.append({"name": gone.label, "bytes": _total(gone.size), "why": why})
            del gone
        if keys:
            gc.collect()
            self._after_drop()
        return freed


def _total(size: Room) -> int:
    return size.device_bytes + size.host_bytes


def _fits(size: Room, room: Room) -> bool:
    return size.device_bytes <= room.device_bytes and size.host_bytes <= room.host_bytes
