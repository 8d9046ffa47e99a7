"""Staying responsive: health and submits while a run denoises on this machine's CPU."""

from __future__ import annotations

import statistics
import threading
import time

import httpx

from benchmarks.measure import Result
from benchmarks.scenarios.submit import rate
from benchmarks.subject import Subject, ours

GRAPH = {
    "schemaVersion": 1,
    "nodes": [
        {"id": "p", "type": "input/text", "params": {"text": "a red circle"}},
        {
            "id": "m",
            "type": "alibaba/z-image-turbo",
            "params": {"steps": 100, "width": 512, "height": 512},
            "inputs": {"prompt": {"from": "p", "output": "text"}},
        },
    ],
}


def while_denoising(*, quick: bool) -> list[Result]:
    """p99 of health, and the submit rate, with the bundled model denoising all the time."""
    health = Result("health p99 while denoising", "ms", "lower", gate=1.0, note="limit: 50 ms")
    submits = Result("submits while denoising vs idle", "runs/s", "higher", gate=0.5)
    with ours(INLINE_WARM_UP="true") as server:
        _render(server, steps=1)
        idle = rate(server, 1)
        for _ in range(1 if quick else 3):
            run_id = _start(server)
            health.us.append(_health_p99(server))
            health.limit.append(50.0)
            submits.us.append(rate(server, 1))
            submits.limit.append(idle)
            httpx.delete(f"{server.url}/v1/runs/{run_id}")
    return [health, submits]


def _render(server: Subject, steps: int) -> None:
    nodes = [GRAPH["nodes"][0], {**GRAPH["nodes"][1], "params": {"steps": steps}}]  # type: ignore[index]
    body = {"graph": {"schemaVersion": 1, "nodes": nodes}, "target": "m"}
    run = httpx.post(f"{server.url}/v1/runs?wait=120", json=body, timeout=130).json()
    if run["status"] != "done":
        raise RuntimeError(run["error"])


def _start(server: Subject) -> str:
    """Begin a long run, and wait until it denoises."""
    body = {"graph": GRAPH, "target": "m"}
    run_id: str = httpx.post(f"{server.url}/v1/runs", json=body).json()["runId"]
    pause = threading.Event()
    while httpx.get(f"{server.url}/v1/runs/{run_id}").json()["nodes"]["m"].get("step") is None:
        pause.wait(0.02)
    return run_id


def _health_p99(server: Subject) -> float:
    times = []
    with httpx.Client(base_url=server.url) as client:
        for _ in range(300):
            started = time.perf_counter()
            client.get("/v1/health")
            times.append((time.perf_counter() - started) * 1000)
    return statistics.quantiles(times, n=100)[98]
