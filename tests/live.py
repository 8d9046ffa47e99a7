"""A real server on a loopback port, in a thread of the test process or as a process of its own."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from websockets.sync.client import ClientConnection, connect

from inline_core.graph.spec import NodeSpec
from inline_core.server.app import create_app
from inline_core.server.services import Services, build_services
from inline_core.settings import Settings
from tests.durability import faulty_server

ROOT = Path(__file__).parent.parent


class Client:
    """What tests say to a server, whichever way it was started."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=60)

    def submit(self, nodes: list[dict[str, Any]], target: str, **more: Any) -> httpx.Response:
        wait = more.pop("wait", None)
        body = {"graph": {"schemaVersion": 1, "nodes": nodes}, "target": target, **more}
        params = {} if wait is None else {"wait": wait}
        return self.http.post("/v1/runs", json=body, params=params)

    def run(self, run_id: str) -> dict[str, Any]:
        response = self.http.get(f"/v1/runs/{run_id}")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def socket(self, run_id: str, query: str = "") -> ClientConnection:
        address = self.url.replace("http://", "ws://")
        return connect(
            f"{address}/v1/runs/{run_id}/events{query}", open_timeout=20, ping_interval=None
        )

    def frames(self, run_id: str, query: str = "") -> list[dict[str, Any]]:
        """All text frames until the server closes; the close code must be 1000."""
        with self.socket(run_id, query) as socket:
            found = [json.loads(text) for text in socket if isinstance(text, str)]
            assert socket.close_code == 1000, socket.close_code
        return found

    def wait_until_final(self, run_id: str) -> dict[str, Any]:
        self.frames(run_id)
        return self.run(run_id)


class LiveServer(Client):
    """A server in a thread of this process, with its services at hand."""

    def __init__(self, settings: Settings, specs: Mapping[str, NodeSpec] | None = None) -> None:
        self.settings = settings
        self.services: Services = build_services(settings, specs)
        self.app = create_app(settings, self.services)
        config = uvicorn.Config(
            self.app, host="127.0.0.1", port=0, log_config=None, ws_ping_interval=None,
            timeout_graceful_shutdown=2,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._started = threading.Event()
        self._server.config.callback_notify = None
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 30
        pause = threading.Event()
        while not self._server.started:
            assert time.monotonic() < deadline, "the server did not start"
            assert self._thread.is_alive(), "the server ended while starting"
            pause.wait(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        super().__init__(f"http://127.0.0.1:{port}")

    def close(self) -> None:
        self.http.close()
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()


@contextmanager
def live_server(
    settings: Settings, specs: Mapping[str, NodeSpec] | None = None
) -> Iterator[LiveServer]:
    server = LiveServer(settings, specs)
    try:
        yield server
    finally:
        server.close()


class ServerProcess(Client):
    """A server process with the faulty nodes, to be killed.

    Forked from a process that has imported all that it needs, as tests start many.
    """

    def __init__(self, data_dir: Path, models_dir: Path, **environment: str) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        address = data_dir / "server.json"
        address.unlink(missing_ok=True)
        told = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
        self.process = _forks().Process(
            target=faulty_server.run,
            args=(data_dir, models_dir, told, data_dir / "server.log"),
            daemon=True,
        )
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid
        try:
            super().__init__(self._first_answer(address))
        except AssertionError:
            self.process.kill()
            self.wait(20)
            raise

    def _first_answer(self, address: Path) -> str:
        pause = threading.Event()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self.process.is_alive(), "the server ended while starting"
            try:
                url: str = json.loads(address.read_text())["url"]
                if httpx.get(f"{url}/v1/health", timeout=5).is_success:
                    return url
            except (OSError, ValueError, httpx.HTTPError):
                pause.wait(0.02)
        message = "the server did not start"
        raise AssertionError(message)

    def wait(self, seconds: float) -> int:
        """Wait for its end; gives the exit code."""
        self.process.join(seconds)
        code = self.process.exitcode
        assert code is not None, "the server did not end"
        return code

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        self.process.kill()
        self.wait(20)
        self.close()

    def stop(self) -> int:
        """SIGTERM, a clean stop; gives the exit code."""
        self.process.terminate()
        code = self.wait(30)
        self.close()
        return code

    def close(self) -> None:
        self.http.close()


@functools.cache
def _forks() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.durability.preloaded"])
    return context
