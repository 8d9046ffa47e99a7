"""Content-addressed files: durable, confined, never torn."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from inline_core.errors import Forbidden, PayloadTooLarge
from inline_core.takes.files import ContentFiles, confined


def test_write_release_delete(tmp_path: Path) -> None:
    files = ContentFiles(tmp_path / "takes")
    sha256 = files.write(b"abc", "png")
    assert sha256 == hashlib.sha256(b"abc").hexdigest()
    path = files.path(sha256, "png")
    assert path.read_bytes() == b"abc"
    files.delete(sha256, "png")
    assert path.exists(), "a pinned file stays"
    files.release(sha256)
    files.delete(sha256, "png")
    assert not path.exists()


def test_uploads_are_cut_at_the_limit_and_leave_nothing(tmp_path: Path) -> None:
    files = ContentFiles(tmp_path / "assets")
    with (
        pytest.raises(PayloadTooLarge, match="INLINE_X"),
        files.incoming(4, "INLINE_X") as incoming,
    ):
        incoming.write(b"abc")
        incoming.write(b"de")
    assert list((tmp_path / "assets").iterdir()) == []


def test_sweep_removes_what_a_crash_left(tmp_path: Path) -> None:
    files = ContentFiles(tmp_path / "takes")
    (tmp_path / "takes" / ".part-dead").write_bytes(b"x")
    assert files.sweep() == 1
    assert list((tmp_path / "takes").iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_links_out_of_the_root_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "etc").symlink_to("/etc")
    with pytest.raises(Forbidden):
        confined(root, root / "etc" / "passwd")
    with pytest.raises(Forbidden):
        confined(root, root / ".." / "x")
    files = ContentFiles(root)
    for bad in ("..", "x" * 64, "a" * 63, "../../etc/passwd"):
        with pytest.raises(Forbidden):
            files.path(bad, "png")


def test_a_file_that_a_program_made_is_adopted_once(tmp_path: Path) -> None:
    files = ContentFiles(tmp_path)
    for _ in range(2):
        with files.temporary() as path:
            path.write_bytes(b"a video")
            path.with_name(f"{path.name}.sound").write_bytes(b"beside it")
            sha256, size = files.adopt(path, "mp4")
        assert size == 7
        assert files.path(sha256, "mp4").read_bytes() == b"a video"
    assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == [
        files.path(sha256, "mp4")
    ]
    files.release(sha256)
    files.delete(sha256, "mp4")
    assert files.path(sha256, "mp4").exists()  # the second adoption still holds it
    files.release(sha256)
    files.delete(sha256, "mp4")
    assert not files.path(sha256, "mp4").exists()


def test_what_a_crash_left_beside_a_file_is_swept(tmp_path: Path) -> None:
    files = ContentFiles(tmp_path)
    with pytest.raises(RuntimeError), files.temporary() as path:
        path.write_bytes(b"half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"half")
    path.with_name(f"{path.name}.sound").write_bytes(b"half")
    assert files.sweep() == 2
    assert list(tmp_path.iterdir()) == []
