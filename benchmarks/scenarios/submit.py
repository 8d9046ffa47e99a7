"""Submitting: latency of one run, and rates from several clients, against the bare sketch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import httpx
from websockets.sync.client import connect

from benchmarks.measure import Result, alternate
from benchmarks.subject import Subject, bare, ours

BODY = {
    "graph": {
        "schemaVersion": 1,
        "nodes": [{"id": "a", "type": "input/text", "params": {"text": "x"}}],
    },
    "target": "a",
}


def submit_latency(*, quick: bool) -> list[Result]:
    """Submit, open the stream, see the run done: median of many."""
    result = Result("submit -> run_done seen", "ms", "lower", gate=1.6)
    with ours() as server, bare() as limit:
        alternate(result, _latency(server), _latency(limit), 3 if quick else 5)
    return [result]


def _latency(server: Subject) -> Callable[[], float]:
    def measure() -> float:
        times = []
        with httpx.Client(base_url=server.url) as client:
            for _ in range(40):
                started = time.perf_counter()
                run_id = client.post("/v1/runs", json=BODY).json()["runId"]
                with connect(f"{server.socket_url}/v1/runs/{run_id}/events") as socket:
                    for text in socket:
                        frame = json.loads(text)
                        if frame["type"] == "run_done" or (
                            frame["type"] == "snapshot" and frame["state"]["status"] == "done"
                        ):
                            break
                times.append(time.perf_counter() - started)
        return sorted(times)[len(times) // 2] * 1000

    return measure


def submit_rates(*, quick: bool) -> list[Result]:
    """Durable submits a second from 1, 8 and 64 clients at once."""
    results = []
    for clients in (1, 8) if quick else (1, 8, 64):
        result = Result(f"submits from {clients} clients", "runs/s", "higher", gate=0.5)
        with ours(INLINE_MAX_QUEUE="1000000") as server, bare() as limit:
            alternate(
                result,
                lambda server=server, clients=clients: rate(server, clients),  # type: ignore[misc]
                lambda limit=limit, clients=clients: rate(limit, clients),  # type: ignore[misc]
                3 if quick else 5,
            )
        results.append(result)
    return results


def rate(server: Subject, clients: int, seconds: float = 2.0) -> float:
    """Accepted runs a second."""
    counts = [0] * clients
    barrier = threading.Barrier(clients + 1)

    def work(index: int) -> None:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            barrier.wait()
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                client.post("/v1/runs", json=BODY)
                counts[index] += 1

    threads = [threading.Thread(target=work, args=(index,)) for index in range(clients)]
    for thread in threads:
        thread.start()
    barrier.wait()
    started = time.monotonic()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - started)
