"""Streams: fan-out to many sockets, and one reader that never reads."""

from __future__ import annotations

import asyncio
import json
import time
from urllib.parse import quote

import httpx
from websockets.asyncio.client import connect

from benchmarks.measure import Result
from benchmarks.subject import Subject, bare, ours

FRAMES = 40


def fan_out(*, quick: bool) -> list[Result]:
    """Server CPU per frame sent to many sockets, against sending a ready text."""
    sockets = 50 if quick else 200
    result = Result(f"frame to each of {sockets} sockets", "us CPU", "lower", gate=1.3)
    with ours() as server, bare() as limit:
        for _ in range(2 if quick else 4):
            result.us.append(asyncio.run(_ours(server, sockets)))
            result.limit.append(asyncio.run(_bare(limit, sockets)))
    return [result]


def _nodes(count: int) -> list[dict[str, object]]:
    params = {"count": count, "pause_ms": 105}
    return [{"id": "s", "type": "test/steps", "params": params}]


async def _ours(server: Subject, sockets: int) -> float:
    """Progress at the pace of the stream; CPU over frames, the run's own cost taken off."""
    alone = _run_cost(server)
    body = {"graph": {"schemaVersion": 1, "nodes": _nodes(FRAMES)}, "target": "s", "force": True}
    async with httpx.AsyncClient(base_url=server.url) as client:
        run_id = (await client.post("/v1/runs", json=body)).json()["runId"]
    opened = [await connect(f"{server.socket_url}/v1/runs/{run_id}/events") for _ in range(sockets)]
    before = server.cpu_s()

    async def read(index: int) -> int:
        return len([text async for text in opened[index]])

    counts = await asyncio.gather(*(read(index) for index in range(sockets)))
    return (server.cpu_s() - before - alone) * 1e6 / sum(counts)


def _run_cost(server: Subject) -> float:
    """CPU of such a run that nobody watches."""
    before = server.cpu_s()
    body = {"graph": {"schemaVersion": 1, "nodes": _nodes(FRAMES)}, "target": "s", "force": True}
    httpx.post(f"{server.url}/v1/runs?wait=60", json=body, timeout=70)
    return server.cpu_s() - before


async def _bare(server: Subject, sockets: int) -> float:
    text = json.dumps({"type": "progress", "runId": "run_0123456789ab", "nodeId": "s", "step": 1})
    address = f"{server.socket_url}/fan?frames={FRAMES}&text={quote(text)}"
    opened = [await connect(address) for _ in range(sockets)]
    before = server.cpu_s()

    async def read(index: int) -> int:
        await opened[index].send("go")
        return len([frame async for frame in opened[index]])

    counts = await asyncio.gather(*(read(index) for index in range(sockets)))
    return (server.cpu_s() - before) * 1e6 / sum(counts)


def stalled_reader(*, quick: bool) -> list[Result]:
    """Memory growth and the others' delay while one client never reads."""
    growth = Result("memory for a stalled reader", "MB", "lower", limit=[1.0], gate=1.0)
    delay = Result("others' frames with a stalled reader", "s to the end", "lower", gate=1.2)
    with ours() as server:
        for _ in range(1 if quick else 3):
            delay.limit.append(asyncio.run(_watch(server, stalled=False))[0])
            seconds, grown = asyncio.run(_watch(server, stalled=True))
            delay.us.append(seconds)
            growth.us.append(grown)
    growth.limit = [1.0] * len(growth.us)
    return [growth, delay]


async def _watch(server: Subject, *, stalled: bool) -> tuple[float, float]:
    body = {"graph": {"schemaVersion": 1, "nodes": _nodes(FRAMES)}, "target": "s", "force": True}
    async with httpx.AsyncClient(base_url=server.url) as client:
        run_id = (await client.post("/v1/runs", json=body)).json()["runId"]
    address = f"{server.socket_url}/v1/runs/{run_id}/events"
    sleeper = await connect(address, max_queue=1) if stalled else None
    before = server.rss_bytes()
    started = time.perf_counter()
    async with connect(address) as socket:
        async for _ in socket:
            pass
    seconds = time.perf_counter() - started
    grown = max(0.0, (server.rss_bytes() - before) / 1e6)
    if sleeper is not None:
        await sleeper.close()
    return seconds, grown
