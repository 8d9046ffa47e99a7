"""Runs over HTTP and websocket, against a real server."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError

from tests.fault_nodes import GATE
from tests.live import LiveServer

PAINT: list[dict[str, Any]] = [
    {"id": "p", "type": "input/text", "params": {"text": "hi"}},
    {
        "id": "a",
        "type": "test/paint",
        "params": {"shade": 7, "seed": 3},
        "inputs": {"text": {"from": "p", "output": "text"}},
    },
]
WAIT: list[dict[str, Any]] = [{"id": "w", "type": "test/wait"}]


def test_a_run_ends_done_with_a_take(server: LiveServer) -> None:
    reply = server.submit(PAINT, "a", wait=20)
    run = reply.json()
    assert reply.status_code == 201
    assert run["status"] == "done"
    assert run["fraction"] == 1.0
    assert {node: entry["state"] for node, entry in run["nodes"].items()} == {
        "p": "done",
        "a": "done",
    }
    assert run["seeds"] == {"a": 3}
    assert run["createdAt"] <= run["startedAt"] <= run["finishedAt"]
    take = run["takes"][0]
    assert take["uri"] == f"takes/{take['id']}.png"
    assert take["params"]["prompt"] == "hi"
    data = server.http.get(f"/v1/{take['uri']}")
    assert data.headers["content-type"] == "image/png"
    assert f"sha256-{hashlib.sha256(data.content).hexdigest()}" == take["hash"]
    part = server.http.get(f"/v1/takes/{take['id']}/bytes", headers={"Range": "bytes=0-15"})
    assert part.status_code == 206
    assert part.content == data.content[:16]
    same = server.http.get(
        f"/v1/takes/{take['id']}/bytes", headers={"If-None-Match": f"W/{data.headers['etag']}"}
    )
    assert same.status_code == 304


def test_the_second_run_reuses_the_take(server: LiveServer) -> None:
    first = server.submit(PAINT, "a", wait=20).json()
    second = server.submit(PAINT, "a", wait=20).json()
    assert second["runId"] != first["runId"]
    assert second["nodes"]["a"]["state"] == "cached"
    assert second["takes"][0]["id"] == first["takes"][0]["id"]
    frames = server.frames(second["runId"], "?after=0")
    done = next(frame for frame in frames if frame["type"] == "node_done")
    assert done["cached"] is True
    assert done["takes"][0]["runId"] == first["runId"]
    forced = server.submit(PAINT, "a", wait=20, force=True).json()
    assert forced["nodes"]["a"]["state"] == "done"
    assert forced["takes"][0]["hash"] == first["takes"][0]["hash"]


def test_a_random_seed_is_resolved_once_and_never_served_stale(server: LiveServer) -> None:
    nodes = [{"id": "a", "type": "test/paint", "params": {"seed": -1}}]
    first = server.submit(nodes, "a", wait=20).json()
    second = server.submit(nodes, "a", wait=20).json()
    assert first["seeds"]["a"] >= 0
    assert first["seeds"] != second["seeds"]
    assert second["nodes"]["a"]["state"] == "done"


def test_a_deleted_take_is_gone_and_made_again(server: LiveServer) -> None:
    first = server.submit(PAINT, "a", wait=20).json()
    take = first["takes"][0]
    assert server.http.delete(f"/v1/takes/{take['id']}").status_code == 204
    for path in (f"/v1/takes/{take['id']}/bytes", f"/v1/{take['uri']}"):
        gone = server.http.get(path)
        assert gone.status_code == 410
        assert gone.json()["error"]["code"] == "output_unavailable"
    assert server.http.delete(f"/v1/takes/{take['id']}").status_code == 410
    assert server.http.get("/v1/takes").json()["takes"] == []
    again = server.submit(PAINT, "a", wait=20).json()
    assert again["nodes"]["a"]["state"] == "done"
    assert again["takes"][0]["id"] != take["id"]


def test_a_take_whose_file_vanished_is_made_again(server: LiveServer) -> None:
    first = server.submit(PAINT, "a", wait=20).json()
    take = first["takes"][0]
    server.services.takes.path(take["hash"].removeprefix("sha256-"), "png").unlink()
    assert server.http.get(f"/v1/takes/{take['id']}/bytes").status_code == 410
    again = server.submit(PAINT, "a", wait=20).json()
    assert again["nodes"]["a"]["state"] == "done"


def test_deleting_a_run_frees_its_takes(server: LiveServer) -> None:
    first = server.submit(PAINT, "a", wait=20).json()
    take = first["takes"][0]
    file = server.services.takes.path(take["hash"].removeprefix("sha256-"), "png")
    shared = server.submit(PAINT, "a", wait=20).json()
    assert server.http.delete(f"/v1/runs/{first['runId']}/record").status_code == 204
    assert server.http.get(f"/v1/runs/{first['runId']}").status_code == 404
    assert file.exists()
    assert server.http.delete(f"/v1/runs/{shared['runId']}/record").status_code == 204
    assert not file.exists()
    assert server.http.get(f"/v1/takes/{take['id']}/bytes").status_code == 410


def test_cancel_of_a_running_run(server: LiveServer) -> None:
    run_id = server.submit(WAIT, "w").json()["runId"]
    assert GATE.begun.acquire(timeout=10)
    assert server.run(run_id)["nodes"]["w"]["state"] == "running"
    reply = server.http.delete(f"/v1/runs/{run_id}")
    assert reply.json() == {"runId": run_id, "status": "cancelled"}
    frames = server.frames(run_id, "?after=0")
    assert frames[-1]["type"] == "cancelled"
    run = server.run(run_id)
    assert run["status"] == "cancelled"
    assert run["takes"] == []
    refused = server.http.delete(f"/v1/runs/{run_id}")
    assert refused.status_code == 409
    assert refused.json()["error"]["details"]["status"] == "cancelled"
    assert server.submit(PAINT, "a", wait=20).json()["status"] == "done"


def test_queue_positions_cancel_priority_and_order(server: LiveServer) -> None:
    server.http.post("/v1/queue/pause")
    ids = [server.submit(WAIT, "w", priority=0).json()["runId"] for _ in range(3)]
    urgent = server.submit(WAIT, "w", priority=5).json()["runId"]
    listed = server.http.get("/v1/runs").json()["runs"]
    assert [run["runId"] for run in listed] == [urgent, *ids]
    assert [run["queuePosition"] for run in listed] == [0, 1, 2, 3]
    assert server.run(ids[1])["queuePosition"] == 2
    assert server.http.delete(f"/v1/runs/{ids[0]}").json()["status"] == "cancelled"
    assert server.run(ids[0])["status"] == "cancelled"
    order = server.http.post("/v1/queue/order", json={"runIds": [ids[2]]}).json()
    assert [run["runId"] for run in order["runs"]] == [ids[2], urgent, ids[1]]
    changed = server.http.patch(f"/v1/runs/{ids[1]}", json={"priority": 9}).json()
    assert changed["queuePosition"] == 0
    refused = server.http.post("/v1/queue/order", json={"runIds": [ids[0]]})
    assert refused.status_code == 409
    GATE.open.set()
    assert server.http.post("/v1/queue/resume").json()["paused"] is False
    for run_id in (*ids[1:], urgent):
        assert server.wait_until_final(run_id)["status"] == "done"


@pytest.mark.parametrize(
    ("kind", "code"),
    [("raise", "node_failed"), ("refuse", "invalid_param"), ("memory", "out_of_memory")],
)
def test_a_failing_node_is_named_and_the_next_run_is_fine(
    server: LiveServer, kind: str, code: str
) -> None:
    nodes = [{"id": "b", "type": "test/boom", "params": {"kind": kind}}]
    run = server.submit(nodes, "b", wait=20).json()
    assert run["status"] == "error"
    assert run["error"]["code"] == code
    assert run["error"]["nodeId"] == "b"
    assert "secret" not in json.dumps(run)
    assert run["nodes"]["b"]["state"] == "error"
    assert server.frames(run["runId"], "?after=0")[-1]["code"] == code
    assert server.http.get("/v1/health").json()["lastErrors"][0]["code"] == code
    assert server.submit(PAINT, "a", wait=20).json()["status"] == "done"


def test_client_run_id(server: LiveServer) -> None:
    first = server.submit(PAINT, "a", clientRunId="mine", wait=20)
    replay = server.submit(PAINT, "a", clientRunId="mine")
    assert (first.status_code, replay.status_code) == (201, 200)
    assert replay.json() == {"runId": first.json()["runId"], "status": "done"}
    other = server.submit([{**PAINT[0]}], "p", clientRunId="mine")
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "conflict"


def test_tags_history_and_paging(server: LiveServer) -> None:
    ids = [server.submit(PAINT, "a", tags=["x"], wait=20).json()["runId"] for _ in range(3)]
    server.submit(PAINT, "a", wait=20)
    found: list[str] = []
    cursor = None
    while True:
        params: dict[str, Any] = {"tag": "x", "limit": 2, **({"cursor": cursor} if cursor else {})}
        page = server.http.get("/v1/runs", params=params).json()
        found += [run["runId"] for run in page["runs"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
    assert sorted(found) == sorted(ids)
    assert len(server.http.get("/v1/runs", params={"status": "done"}).json()["runs"]) == 4
    assert server.http.get("/v1/runs", params={"status": "error"}).json()["runs"] == []
    assert server.http.get("/v1/runs", params={"cursor": "nonsense"}).status_code == 422


def test_sweep(server: LiveServer) -> None:
    body = {
        "graph": {"schemaVersion": 1, "nodes": PAINT},
        "target": "a",
        "table": [{"a": {"shade": shade}} for shade in (1, 2, 3)],
        "tag": "shades",
    }
    reply = server.http.post("/v1/runs/sweep", json=body)
    assert reply.status_code == 201
    runs = [server.wait_until_final(run["runId"]) for run in reply.json()["runs"]]
    assert [run["takes"][0]["params"]["shade"] for run in runs] == [1, 2, 3]
    assert all(run["tags"] == ["shades"] for run in runs)
    for odd in ([1], {"x": 1}, None, 7):
        nodes = [{"id": odd, "type": "test/paint"}, 5, {"id": "", "type": "test/paint"}]
        graph = {"schemaVersion": 1, "nodes": nodes}
        for row in ({}, {"": {"shade": 1}}):
            wrong = {**body, "graph": graph, "table": [row]}
            assert server.http.post("/v1/runs/sweep", json=wrong).status_code == 422
    bad = server.http.post("/v1/runs/sweep", json={**body, "table": [{"a": {"shade": 999}}]})
    assert bad.status_code == 422
    assert "Row 0" in bad.json()["error"]["message"]
    assert len(server.http.get("/v1/runs", params={"tag": "shades"}).json()["runs"]) == 3


def test_retry_keeps_the_seed(server: LiveServer) -> None:
    nodes = [{"id": "a", "type": "test/paint", "params": {"seed": -1}}]
    first = server.submit(nodes, "a", wait=20).json()
    reply = server.http.post(f"/v1/runs/{first['runId']}/retry")
    assert reply.status_code == 201
    again = server.wait_until_final(reply.json()["runId"])
    assert again["retryOf"] == first["runId"]
    assert again["seeds"] == first["seeds"]
    assert again["takes"][0]["id"] == first["takes"][0]["id"]


def test_the_stream_resumes_without_a_gap(server: LiveServer) -> None:
    nodes = [{"id": "s", "type": "test/steps", "params": {"count": 60}}]
    run_id = server.submit(nodes, "s").json()["runId"]
    with server.socket(run_id) as socket:
        snapshot = json.loads(socket.recv())
        assert snapshot["type"] == "snapshot"
        assert snapshot["state"]["runId"] == run_id
    rest = server.frames(run_id, f"?after={snapshot['seq']}&events=all")
    everything = server.frames(run_id, "?after=0&events=all")
    kinds = [frame["type"] for frame in everything]
    assert kinds == ["queued", "run_started", "node_started", "node_done", "run_done"]
    numbered = [frame["seq"] for frame in rest if "seq" in frame]
    assert numbered == [f["seq"] for f in everything if f["seq"] > snapshot["seq"]]
    progress = [frame["fraction"] for frame in rest if frame["type"] == "progress"]
    assert progress == sorted(progress)
    # At least 0.3 s of steps every 5 ms: coalesced to about ten a second.
    assert 1 <= len(progress) <= 8
    finished = server.frames(run_id)
    assert [frame["type"] for frame in finished] == ["snapshot"]
    assert finished[0]["state"]["status"] == "done"
    beyond = server.frames(run_id, "?after=999999999")
    assert beyond[0]["reset"] is True


def test_previews_are_binary_frames(server: LiveServer) -> None:
    nodes = [{"id": "s", "type": "test/steps", "params": {"count": 60}}]
    run_id = server.submit(nodes, "s").json()["runId"]
    with server.socket(run_id, "?previews=1") as socket:
        binary = [frame for frame in socket if isinstance(frame, bytes)]
    assert binary
    size = int.from_bytes(binary[0][:4], "big")
    header = json.loads(binary[0][4 : 4 + size])
    assert header["type"] == "preview"
    assert header["nodeId"] == "s"
    assert binary[0][4 + size :].startswith(b"\xff\xd8")


def test_unknown_run_closes_with_4404(server: LiveServer) -> None:
    with server.socket("run_nope") as socket:
        with pytest.raises(ConnectionClosedError):
            socket.recv()
        assert socket.close_code == 4404


def test_server_sent_events(server: LiveServer) -> None:
    nodes = [{"id": "s", "type": "test/steps", "params": {"count": 20}}]
    run_id = server.submit(nodes, "s").json()["runId"]
    with server.http.stream("GET", f"/v1/runs/{run_id}/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = list(response.iter_lines())
    kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert kinds[0] == "snapshot"
    assert kinds[-1] == "run_done"
    assert server.http.get("/v1/runs/run_nope/events").status_code == 404


def test_a_long_chain_runs_without_recursion(server: LiveServer) -> None:
    nodes: list[dict[str, Any]] = [{"id": "n0", "type": "test/concat"}]
    nodes += [
        {
            "id": f"n{i}",
            "type": "test/concat",
            "inputs": {"first": {"from": f"n{i - 1}", "output": "text"}},
        }
        for i in range(1, 3000)
    ]
    run = server.submit(nodes, "n2999", wait=50).json()
    assert run["status"] == "done", run["error"]
    assert all(entry["state"] == "done" for entry in run["nodes"].values())
    again = server.submit(nodes, "n2999", wait=50).json()
    assert {entry["state"] for entry in again["nodes"].values()} == {"cached"}


def test_a_large_graph_does_not_freeze_health(server: LiveServer) -> None:
    nodes = [
        {"id": f"n{i}", "type": "input/text", "params": {"text": str(i)}} for i in range(12_000)
    ]
    slowest = 0.0
    finished = threading.Event()

    def ask() -> None:
        nonlocal slowest
        while not finished.is_set():
            slowest = max(slowest, server.http.get("/v1/health").elapsed.total_seconds())

    asking = threading.Thread(target=ask)
    asking.start()
    body = {"graph": {"schemaVersion": 1, "nodes": nodes}, "target": "n0"}
    reply = server.http.post("/v1/graphs/validate", json=body)
    finished.set()
    asking.join()
    assert reply.status_code == 200
    assert slowest < 1.0
