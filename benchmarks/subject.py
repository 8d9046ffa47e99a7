"""The servers that are measured: ours, and the barest sketch of the same promise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).parent.parent


class Subject:
    """A server process under measurement."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, started_s: float) -> None:
        self.process = process
        self.url = url
        self.started_s = started_s

    @property
    def socket_url(self) -> str:
        """The address for websockets."""
        return self.url.replace("http://", "ws://")

    def cpu_s(self) -> float:
        """CPU time the process has used so far."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def rss_bytes(self) -> int:
        """Memory the process keeps now."""
        return int(psutil.Process(self.process.pid).memory_info().rss)


@contextmanager
def ours(**environment: str) -> Iterator[Subject]:
    """Our server with an empty data folder; torch is not imported unless asked for."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        command = [sys.executable, "-m", "benchmarks.our_server", str(data)]
        values = {"INLINE_WARM_UP": "false", "INLINE_LOG_LEVEL": "error", **environment}
        with _running(command, data / "server.json", values) as subject:
            yield subject


@contextmanager
def bare() -> Iterator[Subject]:
    """FastAPI, a group-commit writer (WAL, FULL), and a websocket push: nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        address = Path(folder) / "server.json"
        command = [sys.executable, "-m", "benchmarks.bare_server", folder]
        with _running(command, address, {}) as subject:
            yield subject


@contextmanager
def _running(command: list[str], address: Path, environment: dict[str, str]) -> Iterator[Subject]:
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stderr=subprocess.DEVNULL,
    )
    try:
        url = _first_answer(process, address)
        yield Subject(process, url, time.monotonic() - started)
    finally:
        process.terminate()
        process.wait(60)


def _first_answer(process: subprocess.Popen[bytes], address: Path) -> str:
    pause = threading.Event()
    while process.poll() is None:
        try:
            url = str(json.loads(address.read_text())["url"])
            if httpx.get(f"{url}/v1/health", timeout=10).is_success:
                return url
        except (OSError, ValueError, httpx.HTTPError):
            pause.wait(0.005)
    message = f"{process.args!r} ended while starting"
    raise RuntimeError(message)
