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
