"""Values between nodes, kept over all runs: least recently used goes first, by bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SMALL_BYTES = 256


@dataclass(frozen=True, slots=True)
class CacheStats:
    """How the cache does; sizes in bytes."""

    entries: int
    size_bytes: int
    limit_bytes: int
    hits: int
    misses: int
    evictions: int


def size_of(value: object) -> int:
    """What a value keeps in memory, in bytes (handles and texts count little)."""
    size = getattr(value, "size_bytes", None)
    if isinstance(size, int) and not isinstance(size, bool):
        return size + _SMALL_BYTES
    if isinstance(value, tuple):
        return sum(size_of(part) for part in value) + _SMALL_BYTES
    if isinstance(value, str):
        return len(value) + _SMALL_BYTES
    return _SMALL_BYTES


class ValueCache:
    """Outputs of nodes by fingerprint.  Any thread."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entries: OrderedDict[str, tuple[Mapping[str, Any], int]] = OrderedDict()
        self._size_bytes = 0
        self._hits = self._misses = self._evictions = 0
        self._lock = threading.Lock()

    def get(self, fingerprint: str) -> Mapping[str, Any] | None:
        """The outputs of a node with this fingerprint, or None if they are not kept."""
        with self._lock:
            entry = self._entries.get(fingerprint)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(fingerprint)
            return entry[0]

    def put(self, fingerprint: str, outputs: Mapping[str, Any]) -> None:
        """Keep the outputs; a value larger than the whole cache is not kept."""
        size = sum(size_of(value) for value in outputs.values()) + _SMALL_BYTES
        if size > self._limit_bytes:
            return
        with self._lock:
            known = self._entries.pop(fingerprint, None)
            if known is not None:
                self._size_bytes -= known[1]
            self._entries[fingerprint] = (outputs, size)
            self._size_bytes += size
            while self._size_bytes > self._limit_bytes:
                _, (_, freed) = self._entries.popitem(last=False)
                self._size_bytes -= freed
                self._evictions += 1

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._entries.clear()
            self._size_bytes = 0

    def stats(self) -> CacheStats:
        """A look at the counters."""
        with self._lock:
            return CacheStats(
                len(self._entries),
                self._size_bytes,
                self._limit_bytes,
                self._hits,
                self._misses,
                self._evictions,
            )
