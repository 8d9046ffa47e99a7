"""Encoded prompts, so that the same words with another seed need no encoder."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any


class PromptCache:
    """Encoded prompts, least recently used first to go; any thread.

    At most `most` are held, and `most_bytes` of them, but always the newest: an encoded prompt of
    FLUX.2 takes as much as a thousand of Z-Image's shortest.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
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
            replaced = self._held.pop(key, None)
            self._bytes += encoded.size_bytes - (replaced.size_bytes if replaced else 0)
            self._held[key] = encoded
            while len(self._held) > 1 and self._is_over():
                _, gone = self._held.popitem(last=False)
                self._bytes -= gone.size_bytes

    def clear(self) -> None:
        """Let all go."""
        with self._lock:
            self._held.clear()
            self._bytes = 0

    def stats(self) -> dict[str, int]:
        """Hits, misses, how many are held and their bytes."""
        with self._lock:
            held, size = len(self._held), self._bytes
        return {"hits": self._hits, "misses": self._misses, "held": held, "bytes": size}

    def _is_over(self) -> bool:
        return len(self._held) > self._most or self._bytes > self._most_bytes
