"""`kill -9` at every hop and at random moments: nothing accepted is lost, doubled or torn."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosedOK, WebSocketException

from tests.durability.hops import HOPS, RENDER_HOPS
from tests.lengths import LONG, at_length
from tests.live import ServerProcess

# Each test starts several server processes.
pytestmark = pytest.mark.timeout(180)

# In each of five lanes: 50 in all, at full length.
KILLS = at_length(10, 4)
# Each takes two servers that load a real model.
SHOWN_HOPS = list(RENDER_HOPS) if LONG else ["sample-submitted", "stepped", "decoded", "woken"]
TERMINAL = {"run_done", "error", "cancelled"}


def graph(number: int) -> tuple[list[dict[str, Any]], str]:
    """Two nodes with takes each, different for every number."""
    shade = number % 256
    nodes: list[dict[str, Any]] = [
        {"id": "p", "type": "input/text", "params": {"text": str(number)}},
        {
            "id": "a",
            "type": "test/paint",
            "params": {"shade": shade, "seed": number},
            "inputs": {"text": {"from": "p", "output": "text"}},
        },
        {
            "id": "b",
            "type": "test/steps",
            "params": {"count": 5, "shade": shade},
            "inputs": {"image": {"from": "a", "output": "image"}},
        },
    ]
    return nodes, "b"


def submit_until_dead(server: ServerProcess, count: int, accepted: dict[str, str]) -> None:
    """Submit runs; remember the ones that were answered, whatever happens to the others."""
    for _ in range(count):
        number = len(accepted) + random.randrange(10**9)
        nodes, target = graph(number)
        client_id = f"c{number}"
        try:
            reply = server.submit(nodes, target, clientRunId=client_id)
        except httpx.HTTPError:
            return
        if reply.status_code == 201:
            accepted[client_id] = reply.json()["runId"]


def check_everything(
    server: ServerProcess,
    data_dir: Path,
    accepted: dict[str, str],
    makers: tuple[str, ...] = ("a", "b"),
) -> None:
    """The promises of the acceptance, read from the wire and from the disk."""
    for run_id in accepted.values():
        frames = server.frames(run_id, "?after=0&events=all")
        kinds = [frame["type"] for frame in frames if "seq" in frame]
        assert kinds[-1] in TERMINAL
        assert sum(kind in TERMINAL for kind in kinds) == 1
        numbers = [frame["seq"] for frame in frames if "seq" in frame]
        assert numbers == sorted(set(numbers))
        run = server.run(run_id)
        assert run["status"] == "done", run["error"]
        assert Counter(take["nodeId"] for take in run["takes"]) == dict.fromkeys(makers, 1)
        assert {entry["state"] for entry in run["nodes"].values()} <= {"done", "cached"}
        _check_attempts(frames)
    with sqlite3.connect(f"file:{data_dir / 'runs.db'}?mode=ro", uri=True) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = database.execute("SELECT sha256, extension, size_bytes FROM takes").fetchall()
        doubled = database.execute(
            "SELECT run_id, node_id, COUNT(*) FROM takes GROUP BY 1, 2 HAVING COUNT(*) > 1"
        ).fetchall()
    assert doubled == []
    for sha256, extension, size in rows:
        data = (data_dir / "takes" / sha256[:2] / f"{sha256}.{extension}").read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (sha256, size)
    assert not list((data_dir / "takes").glob(".part-*"))


def _check_attempts(frames: list[dict[str, Any]]) -> None:
    """Within one attempt no node is done twice."""
    done: set[str] = set()
    for frame in frames:
        if frame["type"] == "queued":
            done.clear()
        if frame["type"] == "node_done":
            assert frame["nodeId"] not in done
            done.add(frame["nodeId"])


@pytest.mark.parametrize("hop", list(HOPS))
def test_death_at_a_hop(hop: str, tmp_path: Path) -> None:
    data, models = tmp_path / "data", tmp_path / "models"
    accepted: dict[str, str] = {}
    # The first commits of a server are its own: what it recovered.
    count = random.randrange(1, 4) + (2 if "commit" in hop else 0)
    doomed = ServerProcess(
        data, models, INLINE_TEST_DIE_AT=f"{hop}:{count}", INLINE_MAX_ATTEMPTS="9"
    )
    submit_until_dead(doomed, 6, accepted)
    doomed.wait(30)
    doomed.close()
    server = ServerProcess(data, models, INLINE_MAX_ATTEMPTS="9")
    for client_id, run_id in accepted.items():
        nodes, target = graph(int(client_id[1:]))
        replay = server.submit(nodes, target, clientRunId=client_id)
        assert (replay.status_code, replay.json()["runId"]) == (200, run_id)
    check_everything(server, data, accepted)
    assert server.stop() == 0


@pytest.mark.parametrize("hop", SHOWN_HOPS)
def test_death_while_rendering(hop: str, tmp_path: Path, tiny_models: Path) -> None:
    """The same promises where a real picture is sampled, decoded and told about."""
    data = tmp_path / "data"
    accepted: dict[str, str] = {}
    # Every commit wakes somebody, so a later one is taken there.
    count = {"woken": 5, "stepped": 3}.get(hop, 1)
    doomed = ServerProcess(
        data, tiny_models, INLINE_TEST_DIE_AT=f"{hop}:{count}", INLINE_MAX_ATTEMPTS="9"
    )
    for seed in range(3):
        params = {"width": 64, "height": 64, "steps": 4, "seed": seed}
        prompt = {"id": "p", "type": "input/text", "params": {"text": "a fox"}}
        wires = {"prompt": {"from": "p", "output": "text"}}
        node = {"id": "m", "type": "alibaba/z-image-turbo", "params": params, "inputs": wires}
        with contextlib.suppress(httpx.HTTPError):
            reply = doomed.submit([prompt, node], "m")
            assert reply.status_code == 201
            accepted[str(seed)] = reply.json()["runId"]
    with contextlib.suppress(OSError, WebSocketException):
        doomed.frames(next(iter(accepted.values()), "run_none"))
    assert doomed.wait(60) == -signal.SIGKILL
    doomed.close()
    server = ServerProcess(data, tiny_models, INLINE_MAX_ATTEMPTS="9")
    check_everything(server, data, accepted, makers=("m",))
    assert server.stop() == 0


@pytest.mark.parametrize("lane", range(5))
def test_death_at_random(lane: int, tmp_path: Path) -> None:
    """Several kills in each of five lanes, each on the database that the last one left."""
    data, models = tmp_path / "data", tmp_path / "models"
    chance = random.Random(lane)
    accepted: dict[str, str] = {}
    pause = threading.Event()
    for _ in range(KILLS):
        server = ServerProcess(data, models, INLINE_MAX_ATTEMPTS="99")
        submitting = threading.Thread(target=submit_until_dead, args=(server, 12, accepted))
        submitting.start()
        pause.wait(chance.uniform(0.0, 0.5))
        server.process.kill()
        submitting.join()
        server.wait(20)
        server.close()
    server = ServerProcess(data, models, INLINE_MAX_ATTEMPTS="99")
    assert accepted
    check_everything(server, data, accepted)
    assert server.stop() == 0


def test_a_run_that_kills_the_server_cannot_loop(tmp_path: Path) -> None:
    """It is tried twice, ends `interrupted`, and takes no other run with it."""
    data, models = tmp_path / "data", tmp_path / "models"
    server = ServerProcess(data, models)
    server.http.post("/v1/queue/pause")
    nodes, target = graph(1)
    deadly = {"id": "k", "type": "test/boom", "params": {"kind": "kill"}}
    bystanders = [server.submit(nodes, target).json()["runId"]]
    run_id = server.submit([deadly], "k").json()["runId"]
    bystanders += [server.submit(graph(n)[0], target).json()["runId"] for n in (2, 3)]
    with contextlib.suppress(httpx.HTTPError):
        server.http.post("/v1/queue/resume")
    server.wait(20)
    server.close()
    # It is taken up again, and kills the next server, perhaps before that one has answered.
    with contextlib.suppress(AssertionError):
        second = ServerProcess(data, models)
        second.wait(20)
        second.close()
    third = ServerProcess(data, models)
    run = third.wait_until_final(run_id)
    assert (run["status"], run["attempt"]) == ("error", 2)
    assert run["error"]["code"] == "interrupted"
    assert [third.wait_until_final(other)["status"] for other in bystanders] == ["done"] * 3
    assert third.http.get("/v1/health").json()["lastErrors"][0]["code"] == "interrupted"
    assert third.stop() == 0


def test_a_clean_stop_keeps_the_queue_and_costs_no_attempt(tmp_path: Path) -> None:
    data, models = tmp_path / "data", tmp_path / "models"
    server = ServerProcess(data, models, INLINE_WALKERS="1")
    slow = [{"id": "s", "type": "test/steps", "params": {"count": 400, "pause_ms": 10}}]
    running = server.submit(slow, "s").json()["runId"]
    nodes, target = graph(2)
    queued = [server.submit(nodes, target).json()["runId"] for _ in range(3)]
    with server.socket(running) as socket:
        while json.loads(socket.recv())["type"] != "progress":
            pass
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 10
        with pytest.raises(ConnectionClosedOK):
            while True:
                socket.recv()
        assert socket.close_code == 1001
    again = ServerProcess(data, models, INLINE_WALKERS="1")
    listed = [run["runId"] for run in again.http.get("/v1/runs").json()["runs"]]
    assert listed == [running, *queued]
    final = again.wait_until_final(running)
    assert (final["status"], final["attempt"]) == ("done", 1)
    assert all(again.wait_until_final(run_id)["status"] == "done" for run_id in queued)
    assert again.stop() == 0
