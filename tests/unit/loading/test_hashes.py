from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from inline_core.loading import hashes
from inline_core.loading.hashes import FileHashes


def test_small_files_are_hashed_at_once_and_remembered(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    file.write_bytes(b"weights")
    store = tmp_path / "hashes.json"
    wanted = hashlib.sha256(b"weights").hexdigest()
    assert FileHashes(store).find("a", "s1", [file]) == wanted
    file.unlink()
    again = FileHashes(store)
    assert again.find("a", "s1", [file]) == wanted
    assert again.find("a", "s2", [file]) is None  # another state, and the file is gone
    assert again.wait(20)
    assert again.find("a", "s2", [file]) is None


def test_shards_have_one_hash_in_the_order_of_their_names(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(b"x")
    second.write_bytes(b"y")
    one = FileHashes().find("a", "s", [second, first])
    assert one == FileHashes().find("a", "s", [first, second])
    assert one != FileHashes().find("a", "s", [first])


def test_large_files_are_hashed_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "AT_ONCE_BYTES", 3)
    file = tmp_path / "a.safetensors"
    file.write_bytes(b"weights")
    found = FileHashes()
    assert found.find("a", "s", [file]) is None
    assert found.wait(20)
    assert found.find("a", "s", [file]) == hashlib.sha256(b"weights").hexdigest()


@pytest.mark.parametrize("text", ["", "[]", "{", "3"])
def test_a_broken_store_counts_as_none(tmp_path: Path, text: str) -> None:
    store = tmp_path / "hashes.json"
    store.write_text(text)
    file = tmp_path / "a"
    file.write_bytes(b"x")
    assert FileHashes(store).find("a", "s", [file]) is not None
