"""Files of shared memory: used again, given up, swept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inline_core.sampling.backends.parallel import memory as shared
from inline_core.sampling.backends.parallel.memory import (
    SharedFiles,
    SharedReader,
    remove_shared,
    shared_prefix,
    sweep_left,
)
from tests.unit.sampling.parallel.conftest import shared_files


def blobs(*sizes: int) -> list[np.ndarray[Any, Any]]:
    return [
        np.arange(size, dtype=np.int64).astype(np.uint8) + index for index, size in enumerate(sizes)
    ]


def written(files: SharedFiles, content: list[np.ndarray[Any, Any]]) -> tuple[Path, bool]:
    found = files.write(content)
    assert found is not None
    return found


def check(
    reader: SharedReader, path: Path, content: list[np.ndarray[Any, Any]], *, kept: bool
) -> list[np.ndarray[Any, Any]]:
    found = reader.read(str(path), [blob.nbytes for blob in content], kept=kept)
    for one, other in zip(found, content, strict=True):
        assert np.array_equal(one, other)
    return found


def mapped(path: Path) -> bool:
    """Whether this process holds the memory of a file, removed or not."""
    return path.name in Path("/proc/self/maps").read_text()


def test_a_file_is_written_again_only_when_nobody_needs_it(memory: str) -> None:
    files, reader = SharedFiles(memory), SharedReader(memory)
    first, second = blobs(1000, 0, 7), blobs(70_000, 3)
    one = written(files, first)
    other = written(files, second)
    assert one[0] != other[0]
    held = check(reader, one[0], first, kept=one[1])
    # As long as one view of it lives; and what was read may be written to.
    held = [held[2][2:]]
    held[0] += 1
    assert written(files, first)[0] not in {one[0], other[0]}
    assert held[0].tolist() == [5, 6, 7, 8, 9]
    held.clear()
    # What is larger has a file of its own, which takes the place of a free one.
    large = written(files, second)
    check(reader, large[0], second, kept=large[1])
    assert not one[0].exists()
    for content in (first, blobs(), second):
        assert written(files, content) == large
        check(reader, large[0], content, kept=large[1])
    check(reader, other[0], second, kept=other[1])
    assert not mapped(one[0])
    files.close()


def test_what_was_read_outlives_both_ends(memory: str) -> None:
    files, reader = SharedFiles(memory), SharedReader(memory)
    path, kept = written(files, blobs(5000))
    held = check(reader, path, blobs(5000), kept=kept)
    files.close()
    del reader
    assert not shared_files(memory)
    assert np.array_equal(held[0], blobs(5000)[0])


def test_large_ones_and_too_many_are_not_kept(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_MOST_KEPT_BYTES", 5000)
    files, reader = SharedFiles(memory), SharedReader(memory)
    small, large = blobs(1000), blobs(6000)
    unread = [written(files, small) for _ in range(3)]
    assert all(kept for _, kept in unread)
    path, kept = written(files, small)
    assert not kept
    check(reader, path, small, kept=kept)
    assert len(shared_files(memory)) == 3
    check(reader, unread[0][0], small, kept=True)
    path, kept = written(files, large)
    assert not kept
    assert path.exists()
    check(reader, path, large, kept=kept)
    assert len(shared_files(memory)) == 3
    assert not mapped(path)
    files.close()


def test_what_does_not_fit_its_message_is_told(memory: str) -> None:
    files, reader = SharedFiles(memory), SharedReader(memory)
    path, kept = written(files, blobs(100))
    with pytest.raises(ValueError, match="shorter than it says"):
        reader.read(str(path), [1000], kept=kept)
    for other in (f"{memory}x/../y", "/etc/passwd", ""):
        with pytest.raises(ValueError, match="not of its group"):
            reader.read(other, [100], kept=True)
    with pytest.raises(OSError, match="No such file"):
        reader.read(f"{memory}none", [100], kept=True)
    files.close()


def test_only_what_dead_processes_left_is_swept(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as gone:
        gone.wait()
    (tmp_path / f"inline-core-{gone.pid}-a").write_bytes(b"x")
    folder = tmp_path / f"inline-core-{gone.pid}-b"
    folder.mkdir()
    (folder / "ranks.log").write_bytes(b"x")
    kept = [f"inline-core-{os.getpid()}-a", "inline-core-x-y", "other"]
    for name in kept:
        (tmp_path / name).write_bytes(b"x")
    assert sweep_left(tmp_path, "inline-core-") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_the_memory_of_one_group_is_removed(memory: str) -> None:
    other = shared_prefix()
    for prefix in (memory, other):
        Path(f"{prefix}1").write_bytes(b"x")
    remove_shared(memory)
    remove_shared("")
    assert not shared_files(memory)
    assert len(shared_files(other)) == 1
    remove_shared(other)
