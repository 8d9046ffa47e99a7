"""The value cache keeps its limit; progress slots never fall and are forgotten."""

from __future__ import annotations

import numpy as np

from inline_core.engine.cache import ValueCache
from inline_core.engine.progress import ProgressBoard
from inline_core.media.values import Image


def image(size: int) -> Image:
    return Image(np.zeros((size, size, 3), np.uint8))


def test_least_recently_used_goes_first() -> None:
    cache = ValueCache(3 * 3600)
    for name in "abc":
        cache.put(name, {"image": image(32)})
    assert cache.get("a") is not None
    cache.put("d", {"image": image(32)})
    assert cache.get("b") is None
    assert cache.get("a") is not None
    stats = cache.stats()
    assert stats.size_bytes <= stats.limit_bytes
    assert stats.evictions == 1
    cache.put("huge", {"image": image(200)})
    assert cache.get("huge") is None


def test_slots_are_overwritten_and_fractions_never_fall() -> None:
    told: list[str] = []
    board = ProgressBoard(told.append)
    board.update("r", "n", "sample", 0.5)
    board.update("r", "n", "sample", 0.4, step=2, step_count=4)
    slots, _ = board.changed("r", 0)
    assert [(slot.fraction, slot.step) for slot in slots] == [(0.5, 2)]
    assert told == ["r", "r"]
    board.forget("r")
    assert board.slots("r") == {}


def test_previews_are_made_only_for_watchers() -> None:
    board = ProgressBoard(lambda _: None)
    made: list[int] = []

    def encode() -> bytes:
        made.append(1)
        return b"x"

    board.update("r", "n", "sample", 0.1)
    board.offer_preview("r", "n", encode)
    assert made == []
    board.watch("r", 1)
    board.offer_preview("r", "n", encode)
    board.offer_preview("r", "n", encode)
    assert made == [1], "at most ten a second"
    assert board.changed("r", 0)[1][0].data == b"x"
