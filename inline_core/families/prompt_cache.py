"""Encoded prompts, so that the same words with another seed need no encoder."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any


class PromptCache:
    """Encoded prompts, least recently used first to go; any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._held: OrderedDict[Any, Any] = OrderedDict()
        self._hits = self._misses = 0

    def get(self, key: Any) -> Any | None:
        """The encoded prompt, or None."""
        with self._lock:
            if key not in self._held:
                self._misses += 1
                return None
            self._hits += 1
            self._held.move_to_end(key)
            return self._held[key]

    def put(self, key: Any, encoded: Any) -> None:
        """Keep one more."""
        with self._lock:
            self._held[key] = encoded
            if len(self._held) > self._most:
                self._held.popitem(last=False)

    def clear(self) -> None:
        """Let all go."""
        with self._lock:
            self._held.clear()

    def stats(self) -> dict[str, int]:
        """Hits, misses, how many are held and their bytes."""
        with self._lock:
            held = list(self._held.values())
        size = sum(encoded.size_bytes for encoded in held)
        return {"hits": self._hits, "misses": self._misses, "held": len(held), "bytes": size}
