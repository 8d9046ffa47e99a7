from __future__ import annotations

import json
from pathlib import Path

import pytest

from inline_core.sampling.speeds import SAMPLES, PassSpeeds


def measured(speeds: PassSpeeds, kind: str, per_row: dict[int, float], available: int) -> int:
    """Answer all wishes for measurements; gives the size that was settled on."""
    for _ in range(100):
        size, measure = speeds.rows_for(kind, available)
        if not measure:
            return size
        speeds.record(kind, size, per_row[size])
    raise AssertionError


def test_the_fastest_size_wins() -> None:
    speeds = PassSpeeds()
    assert measured(speeds, "a", {1: 3.0, 2: 2.0, 4: 1.0, 8: 1.5}, 8) == 4
    assert speeds.rows_for("a", 20) == (16, True)  # more than ever before: measured first
    assert speeds.gain("a") == pytest.approx(3.0)


def test_serial_where_batching_costs() -> None:
    speeds = PassSpeeds()
    assert measured(speeds, "a", {1: 1.0, 2: 1.1, 4: 1.3}, 5) == 1
    assert speeds.gain("a") == 1.0


def test_all_that_wait_go_together_while_more_is_better() -> None:
    speeds = PassSpeeds()
    assert measured(speeds, "a", {1: 4.0, 2: 2.0, 4: 1.0}, 7) == 7
    assert measured(speeds, "a", {}, 4) == 4


def test_rows_that_belong_together_are_never_split() -> None:
    speeds = PassSpeeds()
    sizes = set()
    for _ in range(20):
        size, _ = speeds.rows_for("pairs", 8, least=3)
        sizes.add(size)
        speeds.record("pairs", size, {3: 1.0, 4: 2.0, 8: 3.0}[size])
    assert sizes == {3, 4, 8}
    assert speeds.rows_for("pairs", 8, least=3) == (3, False)


def test_figures_outlive_the_server(tmp_path: Path) -> None:
    path = tmp_path / "speeds.json"
    first = PassSpeeds(path)
    assert measured(first, "a", {1: 1.0, 2: 0.5}, 2) == 2
    again = PassSpeeds(path)
    assert again.rows_for("a", 2) == (2, False)
    assert again.stats() == {"a": {"1": 1000.0, "2": 500.0}}
    assert len(json.loads(path.read_text())["secondsPerRow"]["a"]["1"]) == SAMPLES


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": 9}', '{"format": 1}', '{"format":1,"secondsPerRow":{"a":1}}'],
)
def test_a_broken_file_counts_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "speeds.json"
    path.write_text(text)
    assert PassSpeeds(path).rows_for("a", 4) == (4, True)


def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    speeds = PassSpeeds(tmp_path / "gone" / "speeds.json")
    assert measured(speeds, "a", {1: 1.0, 2: 0.5}, 2) == 2
