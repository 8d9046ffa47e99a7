"""Loaded components: shared while equal, kept warm while there is room, dropped oldest first."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from inline_core.errors import OutOfMemory
from inline_core.loading.header import size_in_words

T = TypeVar("T")


@dataclass(slots=True)
class _Held:
    """One loaded component."""

    value: Any
    size_bytes: int
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
    """Holds components by key.  Used on the device thread; `stats` may be called from anywhere.

    `room_bytes` says how much a new component may take now; `after_drop` gives memory back to the
    device; with `keep_warm` False a component goes as soon as nobody leases it.
    """

    def __init__(
        self,
        room_bytes: Callable[[], int],
        *,
        keep_warm: bool = True,
        after_drop: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._room_bytes = room_bytes
        self._keep_warm = keep_warm
        self._after_drop = after_drop
        self._clock = clock
        self._held: dict[Hashable, _Held] = {}
        self._counts = PoolCounts()

    def lease(self, key: Hashable, label: str, size_bytes: int, load: Callable[[], T]) -> Lease[T]:
        """The component `key`, loaded with `load` if it is not there.

        What is oldest and not leased is dropped before a load that would not fit.
        Raises: OutOfMemory with the numbers if it cannot fit, and whatever `load` raises.
        """
        held = self._held.get(key)
        if held is None:
            self._counts.misses += 1
            self._make_room(label, size_bytes)
            held = _Held(load(), size_bytes, label)
            self._held[key] = held
            self._counts.bytes_loaded += size_bytes
        else:
            self._counts.hits += 1
        held.leases += 1
        held.used_s = self._clock()

        def release() -> None:
            held.leases -= 1
            held.used_s = self._clock()
            if not self._keep_warm and held.leases == 0:
                self._drop([key], "not_kept_warm")

        return Lease(held.value, release)

    def free(self) -> int:
        """Drop everything that is not leased; gives the bytes freed."""
        return self._drop(self._unleased(), "asked")

    def drop_idle(self, older_than_s: float) -> int:
        """Drop what nobody has used for so long; gives the bytes freed."""
        limit = self._clock() - older_than_s
        old = [key for key in self._unleased() if self._held[key].used_s <= limit]
        return self._drop(old, "idle")

    def stats(self) -> dict[str, Any]:
        """Counters and what is loaded, for `/v1/health`."""
        held = list(self._held.values())
        counts = self._counts
        return {
            "hits": counts.hits,
            "misses": counts.misses,
            "evictions": counts.evictions,
            "evictionReasons": dict(counts.reasons),
            "bytesLoaded": counts.bytes_loaded,
            "bytesHeld": sum(item.size_bytes for item in held),
            "held": [
                {"name": item.label, "bytes": item.size_bytes, "leases": item.leases}
                for item in held
            ],
        }

    def _unleased(self) -> list[Hashable]:
        """Keys nobody leases, least recently used first."""
        keys = [key for key, held in self._held.items() if held.leases == 0]
        return sorted(keys, key=lambda key: self._held[key].used_s)

    def _make_room(self, label: str, size_bytes: int) -> None:
        for key in self._unleased():
            if self._room_bytes() >= size_bytes:
                return
            self._drop([key], "room")
        room = self._room_bytes()
        if room < size_bytes:
            message = (
                f"{label} needs {size_in_words(size_bytes)}, {size_in_words(room)} available: "
                "close other programs or use a smaller model"
            )
            raise OutOfMemory(message, details={"neededBytes": size_bytes, "freeBytes": room})

    def _drop(self, keys: list[Hashable], reason: str) -> int:
        freed = 0
        for key in keys:
            freed += self._held.pop(key).size_bytes
            self._counts.evictions += 1
            self._counts.reasons[reason] = self._counts.reasons.get(reason, 0) + 1
        if keys:
            gc.collect()
            self._after_drop()
        return freed
