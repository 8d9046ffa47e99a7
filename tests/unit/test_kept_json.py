from __future__ import annotations

from pathlib import Path

import pytest

from inline_core.kept_json import read_kept, write_kept


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    assert read_kept(path) is None
    write_kept(path, {"é": [1, 2.5]})
    write_kept(path, {"é": [3]})
    assert read_kept(path) == {"é": [3]}
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe"])
def test_what_makes_no_sense_counts_as_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(content)
    assert read_kept(path) is None


def test_a_disk_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    write_kept(tmp_path / "gone" / "kept.json", {})
    (tmp_path / "folder").mkdir()
    write_kept(tmp_path / "folder", {"a": 1})
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]
