"""Previews cost at most a hundredth of the time, by a clock that only moves when told to."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from inline_core.engine.preview_pace import PreviewPace
from inline_core.engine.progress import Preview, ProgressBoard
from inline_core.server.streaming import preview_frame


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> bytes:
        self.now += seconds
        return b"x"


def shown(clock: Clock, pace: PreviewPace, steps: int, step_s: float, cost_s: float) -> int:
    """How many of `steps` are shown when a step takes so long, and a preview that long."""
    count = 0
    for _ in range(steps):
        clock.now += step_s
        if pace.due():
            pace.make(lambda: clock.spend(cost_s))
            count += 1
    return count


@pytest.mark.parametrize(
    ("step_s", "cost_s", "expected"),
    [
        (2.0, 0.003, 50),  # slow steps: each one
        (0.3, 0.003, 50),
        (0.1, 0.003, 17),  # every third
        (0.02, 0.0001, 10),  # at most ten a second
        (0.02, 0.003, 4),
        (0.02, 1.0, 1),  # the first one only
    ],
)
def test_previews_take_a_hundredth_of_the_time(step_s: float, cost_s: float, expected: int) -> None:
    clock = Clock()
    pace = PreviewPace(clock=clock)
    started = clock.now
    count = shown(clock, pace, 50, step_s, cost_s)
    assert count == pytest.approx(expected, abs=1)
    if count > 1:
        assert (count - 1) * cost_s <= 0.0101 * (clock.now - started)


def test_the_cost_is_measured_anew_each_time() -> None:
    clock = Clock()
    pace = PreviewPace(clock=clock)
    assert shown(clock, pace, 1, 0.1, 1.0) == 1  # the first one also loads what it needs
    clock.now += 99
    assert shown(clock, pace, 10, 1.0, 0.001) == 10


@pytest.mark.parametrize(("expected_s", "wait_s"), [(0.003, 0.3), (0.5, 2.0)])
def test_the_first_one_waits_as_the_last_run_teaches(expected_s: float, wait_s: float) -> None:
    clock = Clock()
    pace = PreviewPace(expected_s, clock)
    clock.now += wait_s - 0.01
    assert not pace.due()
    clock.now += 0.02
    assert pace.due()
    assert PreviewPace(clock=clock).due(), "nothing is known yet"


def test_a_run_knows_what_previews_of_another_took() -> None:
    board = ProgressBoard(lambda _: None)
    for run in ("a", "b"):
        board.watch(run, 1)
    clock = Clock()
    board.update("a", "n", "sample", 0.1)
    board._runs["a"].pace = PreviewPace(clock=clock)
    board.offer_preview("a", "n", lambda: clock.spend(1.0))
    board.update("b", "n", "sample", 0.1)
    board.offer_preview("b", "n", lambda: b"x")
    assert len(board.changed("a", 0)[1]) == 1
    assert board.changed("b", 0)[1] == [], "too early: it may be over in a moment"


def test_only_one_at_a_time_and_a_failed_one_is_over() -> None:
    clock = Clock()
    pace = PreviewPace(clock=clock)
    assert pace.due()
    assert not pace.due(), "one is being made"
    with pytest.raises(ZeroDivisionError):
        pace.make(lambda: 1 / 0)
    clock.now += 1
    assert pace.due()


def test_a_preview_that_fails_ends_nothing() -> None:
    board = ProgressBoard(lambda _: None)
    board.watch("r", 1)
    board.update("r", "n", "sample", 0.1)

    def fail() -> bytes:
        message = "no preview"
        raise ValueError(message)

    board.offer_preview("r", "n", fail)
    assert board.changed("r", 0)[1] == []


def test_the_frame_on_the_socket_says_its_media_type() -> None:
    video = b"RIFF\x10\0\0\0WEBPVP8X"
    frame = preview_frame("run", Preview("n", video, 1, 3))
    assert frame.binary is not None
    size = int.from_bytes(frame.binary[:4], "big")
    assert json.loads(frame.binary[4 : 4 + size]) == {
        "type": "preview",
        "runId": "run",
        "nodeId": "n",
        "step": 3,
        "mediaType": "image/webp",
    }
    assert frame.binary[4 + size :] == video


def test_the_media_type_is_told_by_the_bytes() -> None:
    assert Preview("n", b"\xff\xd8\xff\xe0rest", 1, None).media_type == "image/jpeg"
    assert Preview("n", b"RIFF\x10\0\0\0WEBPVP8X", 1, None).media_type == "image/webp"
