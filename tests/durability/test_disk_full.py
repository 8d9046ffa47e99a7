"""A full disk fails the run as `disk_full`, keeps the database sound, and is over when there is room."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inline_core.settings import Settings
from tests.fault_nodes import specs_with_faults
from tests.live import live_server


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 2_000_000)
    settings = Settings(
        data_dir=small_disk / "data",
        models_dir=tmp_path / "models",
        demo_model=False,
        warm_up=False,
    )
    with live_server(settings, specs_with_faults()) as server:
        outcomes = []
        for seed in range(12):
            params = {"size": 512, "noisy": True, "seed": seed}
            reply = server.submit(
                [{"id": "a", "type": "test/paint", "params": params}], "a", wait=5
            )
            if reply.status_code != 201:
                assert (reply.status_code, reply.json()["error"]["code"]) == (507, "disk_full")
                outcomes.append("refused")
                break
            run = reply.json()
            outcomes.append(run["error"]["code"] if run["error"] else run["status"])
            if outcomes[-1] not in {"done", "running"}:
                break
        assert outcomes[0] == "done"
        assert outcomes[-1] in {"disk_full", "refused"}
        assert server.http.get("/v1/health").status_code == 200
        filler.unlink()
        params = {"size": 64, "noisy": True, "seed": 99}
        after = server.submit([{"id": "a", "type": "test/paint", "params": params}], "a", wait=20)
        assert after.json()["status"] == "done", after.text
    with sqlite3.connect(small_disk / "data" / "runs.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = database.execute("SELECT sha256, size_bytes FROM takes").fetchall()
    database.close()
    for sha256, size in rows:
        file = small_disk / "data" / "takes" / sha256[:2] / f"{sha256}.png"
        assert file.stat().st_size == size
    assert not list((small_disk / "data" / "takes").glob(".part-*"))
