from __future__ import annotations

from dataclasses import dataclass

from inline_core.families.prompt_cache import PromptCache


@dataclass
class Encoded:
    size_bytes: int


def test_the_least_recently_used_goes_first() -> None:
    cache = PromptCache(2, 1000)
    for key in "ab":
        cache.put(key, Encoded(1))
    assert cache.get("a") is not None
    cache.put("c", Encoded(1))
    assert cache.get("b") is None
    assert cache.get("a") is not None
    assert cache.stats() == {"hits": 2, "misses": 1, "held": 2, "bytes": 2}


def test_bytes_count_too_but_the_newest_stays() -> None:
    cache = PromptCache(10, 100)
    for key, size in (("a", 40), ("b", 40), ("c", 40)):
        cache.put(key, Encoded(size))
    assert cache.get("a") is None
    assert cache.stats()["bytes"] == 80
    cache.put("c", Encoded(60))
    assert (cache.stats()["held"], cache.stats()["bytes"]) == (2, 100)
    cache.put("huge", Encoded(5000))
    assert (cache.stats()["held"], cache.stats()["bytes"]) == (1, 5000)
    cache.clear()
    assert cache.stats()["bytes"] == 0
