"""Every recorded exchange of the wire contract against our server.

`FAULTS` is the one table of recordings that are not followed, each with the reason: part C of the
contract calls it a fault of the recorded server, or the issue that built this asks for more.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from tests.contract.replay import Replayer, assert_same_shape, exchanges, recording
from tests.live import LiveServer

# (recording, what) -> (our status, our error code or None, why)
FAULTS: dict[tuple[str, str], tuple[int, str | None, str]] = {
    ("validation_errors", "required wired to empty list"): (
        422,
        "invalid_graph",
        "C20: [] does not satisfy a required port",
    ),
    ("validation_errors", "cycle outside closure"): (
        422,
        "invalid_graph",
        "issue 2: cycles anywhere are reported",
    ),
    ("validation_errors", "cycle"): (422, "invalid_graph", "C17: problems carry nodeId"),
    ("validation_errors", "edge not object"): (422, "invalid_graph", "C17: problems carry nodeId"),
    ("validation_errors", "edge missing output"): (
        422,
        "invalid_graph",
        "C17: problems carry nodeId",
    ),
    ("validation_errors", "body not json"): (
        400,
        "malformed_json",
        "C17: 500 text/plain for bad JSON",
    ),
    ("validation_errors", "body json array"): (422, "invalid_request", "C17: 500 for a JSON array"),
    ("validation_errors", "empty body"): (400, "malformed_json", "C17: 500 for an empty body"),
    ("validation_errors", "clientRunId list"): (422, "invalid_request", "C17: 500 for a list"),
    ("validation_errors", "clientRunId not string"): (
        201,
        None,
        "recorded on a server that knew the id already",
    ),
    ("not_found", "GET /v1/nope"): (404, "not_found", "C17: errors always in the envelope"),
    ("not_found", "PUT /v1/runs"): (405, "method_not_allowed", "C21: envelope and a true Allow"),
    ("not_found", "GET /v1/assets"): (200, None, "C16: assets are listed"),
    ("not_found", "GET /v1/assets/sha256-abc"): (
        404,
        "not_found",
        "C17: errors always in the envelope",
    ),
    ("not_found", "DELETE /v1/takes/t"): (404, "not_found", "C16: takes can be deleted"),
    ("not_found", "HEAD /v1/health"): (200, None, "C21: HEAD works"),
    ("not_found", "OPTIONS /v1/runs"): (204, None, "C21: OPTIONS works"),
    ("models_304", 'W/"r_38e809d2"'): (304, None, "C21: weak tags match"),
    ("models_304", "*"): (304, None, "C21: * matches"),
    ("models_304", '"zzz", "r_38e809d2"'): (304, None, "C21: lists match"),
    ("assets", "video/mp4"): (200, None, "C13: the kind comes from the content"),
    ("assets", "audio/wav"): (200, None, "C13: the kind comes from the content"),
    ("assets", "multipart"): (
        415,
        "unsupported_media_type",
        "A1/C13: a form is not stored as if it were a picture",
    ),
    ("assets", "empty"): (422, "invalid_asset", "C13: zero bytes are not an asset"),
    ("runs_source_nodes", "asset"): (
        201,
        None,
        "C19: a missing asset fails the run instead of passing",
    ),
    ("cancel_and_queue", "delete_again"): (
        409,
        "conflict",
        "C6: DELETE on a finished run says what it is",
    ),
    ("models_with_files", "default"): (
        200,
        None,
        "A4: the picked file *may* replace the default; empty lets a better file be used later",
    ),
    ("ws_unknown_run", "close"): (4404, None, "C2: accepted, then closed with 4404"),
    ("ws_model_run_error_unhandled", "terminal"): (0, None, "C1: the error frame is never lost"),
    ("crash_restart_and_origin", "restart"): (0, None, "C4, C5: see tests/durability"),
    ("crash_restart_and_origin", "origin"): (403, "forbidden", "C23: foreign origins are refused"),
}
Z_IMAGE_TYPES = (
    "vae/decode",
    "vae/encode",
    "sample",
    "latent/empty",
    "encode/text",
    "load/vae",
    "load/diffusion-model",
    "load/text-encoder",
    "load/lora",
    "input/text",
    "input/image",
    "input/video",
)


@pytest.fixture
def replayer(tiny_server: LiveServer) -> Replayer:
    return Replayer(tiny_server)


def _expect(response: Any, key: tuple[str, str]) -> None:
    status, code, _ = FAULTS[key]
    assert response.status_code == status, response.text
    if code is not None:
        assert response.json()["error"]["code"] == code


def _validation_cases() -> Iterator[Any]:
    for exchange in exchanges(recording("validation_errors")):
        yield pytest.param(exchange, id=exchange["label"])


@pytest.mark.parametrize("exchange", list(_validation_cases()))
def test_validation(exchange: dict[str, Any], replayer: Replayer) -> None:
    response = replayer.send(exchange)
    key = ("validation_errors", exchange["label"])
    if key in FAULTS:
        _expect(response, key)
    else:
        replayer.check(exchange, response)


@pytest.mark.parametrize(
    "name", ["health", "client_run_id", "run_no_runner_or_no_model", "model_by_type"]
)
def test_plain_recordings(name: str, replayer: Replayer) -> None:
    for exchange in exchanges(recording(name)):
        response = replayer.send(exchange)
        if name == "run_no_runner_or_no_model" and exchange["request"]["method"] == "GET":
            # Recorded without any model; this server has some, so the loader ends done.
            assert_same_shape({**exchange["body"], "error": None}, response.json())
            continue
        replayer.check(exchange, response)


def test_an_empty_run_list(server: LiveServer) -> None:
    exchange = recording("runs_list")
    replayer = Replayer(server)
    replayer.check(exchange, replayer.send(exchange))


def test_not_found(replayer: Replayer) -> None:
    for exchange in exchanges(recording("not_found")):
        request = exchange["request"]
        key = ("not_found", f"{request['method']} {request['url']}")
        response = replayer.send(exchange)
        if key in FAULTS:
            _expect(response, key)
        else:
            replayer.check(exchange, response)
    refused = replayer.server.http.put("/v1/runs", json={})
    assert refused.headers["allow"] == "GET, HEAD, OPTIONS, POST"


def test_source_nodes(replayer: Replayer) -> None:
    allowed = replayer.server.settings.allowed_roots[0]
    Image.new("RGB", (4, 4)).save(allowed / "x.png")
    replayer.paths["TMP/peerrun/x.png"] = str(allowed / "x.png")
    for exchange in exchanges(recording("runs_source_nodes")):
        response = replayer.send(exchange)
        assert response.status_code == exchange["status"]
        body = {key: value for key, value in exchange["body"].items() if key != "error"}
        assert_same_shape(body, response.json())
        if "status" in response.json() and exchange["request"]["method"] == "GET":
            expected = exchange["body"]["status"]
            if ("runs_source_nodes", exchange.get("label", "")) in FAULTS:
                expected = "error"
            assert response.json()["status"] == expected
            if expected == "error":
                assert response.json()["error"]["code"] == "invalid_asset"


def test_etag(replayer: Replayer) -> None:
    current = replayer.server.http.get("/v1/models").headers["etag"]
    for exchange in exchanges(recording("models_304")):
        header = exchange["if-none-match"]
        ours = {**exchange, "if-none-match": header.replace('"r_38e809d2"', current)}
        response = replayer.send(ours)
        if ("models_304", header) in FAULTS:
            _expect(response, ("models_304", header))
        else:
            assert response.status_code == exchange["status"]
        if response.status_code == 304:
            assert response.content == b""


@pytest.mark.parametrize("node_type", Z_IMAGE_TYPES)
def test_descriptors(node_type: str, tiny_server: LiveServer) -> None:
    """Titles, ports and params are the recorded ones; ranges may be wider, options more."""
    recorded = next(
        entry for entry in recording("models")["body"]["models"] if entry["type"] == node_type
    )
    ours = tiny_server.http.get(f"/v1/models/{node_type}").json()
    for key in ("type", "title", "category", "icon", "source", "inputs", "outputs"):
        assert ours[key] == recorded[key], key
    assert ours.get("hidden") == recorded.get("hidden")
    _compare_params(recorded["params"], ours["params"])


ONE_CLICK = (
    "alibaba/z-image-turbo",
    "black-forest-labs/flux-2",
    "krea/krea-2-turbo",
    "krea/krea-2-raw",
    "minimax/h3-text-to-video",
    "minimax/h3-image-to-video",
    "minimax/h3-first-last-frame",
    "minimax/h3-reference-to-video",
    "lightricks/ltx-2-5-text-to-video",
    "lightricks/ltx-2-5-image-to-video",
    "lightricks/ltx-2-5-first-last-frame",
)


@pytest.mark.parametrize("node_type", ONE_CLICK)
def test_the_one_click_descriptor(tiny_server: LiveServer, node_type: str) -> None:
    recorded = next(
        entry for entry in recording("models")["body"]["models"] if entry["type"] == node_type
    )
    ours = tiny_server.http.get(f"/v1/models/{node_type}").json()
    for key in ("title", "category", "icon", "outputKind", "outputs"):
        assert ours[key] == recorded[key], key
    # Ports are only ever added, after those of the contract, and none that has to be wired.
    count = len(recorded["inputs"])
    assert ours["inputs"][:count] == recorded["inputs"]
    assert not any(port["required"] for port in ours["inputs"][count:])
    _compare_params(recorded["params"], ours["params"])


def _compare_params(recorded: list[dict[str, Any]], ours: list[dict[str, Any]]) -> None:
    by_key = {param["key"]: param for param in ours}
    # Ours keep the recorded order and may add advanced ones.
    assert [key for key in by_key if key in {param["key"] for param in recorded}] == [
        param["key"] for param in recorded
    ]
    for param in recorded:
        mine = by_key[param["key"]]
        for key in ("label", "widget", "kind", "optionsFrom", "advanced"):
            assert mine.get(key) == param.get(key), (param["key"], key)
        if param.get("optionsFrom") is None and "options" in param:
            offered = {option["value"] for option in mine["options"]}
            assert {option["value"] for option in param["options"]} <= offered
        if "min" in param:
            assert mine["min"] <= param["min"]
            assert mine["max"] >= param["max"]


def test_pickers_list_the_files_that_fit(tiny_server: LiveServer) -> None:
    recorded = recording("models_with_files")
    reply = tiny_server.http.get("/v1/models")
    assert reply.headers["etag"] == f'"{reply.json()["registryVersion"]}"'
    assert recorded["etag"] == f'"{recorded["body"]["registryVersion"]}"'
    ours = {model["type"]: model for model in reply.json()["models"]}
    compared = 0
    for model in recorded["body"]["models"]:
        for param in model["params"] if model["type"] in ours else ():
            mine = next(p for p in ours[model["type"]]["params"] if p["key"] == param["key"])
            assert mine.get("optionsFrom") == param.get("optionsFrom")
            # No file of these families is there, and ours offers those that fit only.
            others = ("black-forest-labs/", "krea/", "minimax/", "lightricks/")
            other = model["type"].startswith(others)
            if param.get("optionsFrom") in {"diffusion_models", "vae"} and not other:
                assert_same_shape(param["options"], mine["options"])
                assert mine["default"] == "", FAULTS["models_with_files", "default"]
                compared += 1
    assert compared == 4


def test_assets(tiny_server: LiveServer) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (3, 3), (9, 9, 9)).save(buffer, "PNG")
    for exchange in exchanges(recording("assets")):
        request = exchange["request"]
        media_type = request.get("content-type")
        if request["body"] is None:
            reply = tiny_server.http.post("/v1/assets")
            _expect(reply, ("assets", "empty"))
        elif "multipart" in request["body"]:
            reply = tiny_server.http.post("/v1/assets", files={"file": buffer.getvalue()})
            _expect(reply, ("assets", "multipart"))
        else:
            headers = {"content-type": media_type} if media_type else {}
            reply = tiny_server.http.post("/v1/assets", content=buffer.getvalue(), headers=headers)
            assert reply.status_code == 200
            assert_same_shape(exchange["body"], reply.json())
            assert reply.json()["kind"] == "image"


def _transcript_types(transcript: list[dict[str, Any]]) -> list[str]:
    """Frame types, repeats of progress collapsed."""
    kinds = [entry["frame"]["type"] for entry in transcript if "frame" in entry]
    return [
        kind for i, kind in enumerate(kinds) if i == 0 or kind != kinds[i - 1] or kind != "progress"
    ]


def _live_types(frames: list[dict[str, Any]]) -> list[str]:
    return _transcript_types([{"frame": frame} for frame in frames])


@pytest.mark.parametrize("name", ["ws_model_run_seed_random", "ws_model_run_cached_second"])
def test_model_runs(name: str, replayer: Replayer) -> None:
    document = recording(name)
    for part in document if isinstance(document, list) else [document]:
        response = replayer.send(part["submit"])
        replayer.check(part["submit"], response)
        run_id = response.json()["runId"]
        frames = replayer.server.frames(run_id)
        expected = _transcript_types(part["transcript"])
        ours = _live_types(frames)
        # A run may be further on, or less far, when the socket opens; the order is the same.
        order = ["snapshot", "run_started", "progress", "node_done", "run_done"]
        assert set(expected) <= set(order)
        assert ours[0] == "snapshot"
        assert [order.index(kind) for kind in ours] == sorted(order.index(kind) for kind in ours)
        assert frames[-1]["type"] in {"run_done", "snapshot"}
        recorded_frames = {
            entry["frame"]["type"]: entry["frame"]
            for entry in part["transcript"]
            if "frame" in entry
        }
        for frame in frames:
            if frame["type"] in recorded_frames and frame["type"] != "progress":
                assert_same_shape(_without_node_details(recorded_frames[frame["type"]]), frame)
        final = replayer.send(part["final"]) if isinstance(part["final"], dict) else None
        if final is not None:
            assert_same_shape(_without_node_details(part["final"]["body"]), final.json())
            assert final.json()["fraction"] == 1.0
            seed = final.json()["takes"][0]["params"]["seed"]
            assert seed == final.json()["seeds"]["m1"]


def _without_node_details(document: Any) -> Any:
    """Phase, step and status are there while a node runs; a finished node may drop them."""
    if isinstance(document, dict):
        return {
            key: _without_node_details(value)
            for key, value in document.items()
            if key not in {"phase", "step", "stepCount", "status"} or "runId" in document
        }
    return document


@pytest.mark.parametrize("name", ["ws_model_run_error_component", "ws_model_run_error_unhandled"])
def test_failing_runs_end_with_an_error_frame(name: str, server: LiveServer) -> None:
    recorded = recording(name)
    nodes = [{"id": "m1", "type": "test/boom"}]
    run_id = server.submit(nodes, "m1").json()["runId"]
    frames = server.frames(run_id)
    ending = frames[-1]
    assert ending["type"] == "error" or ending["state"]["status"] == "error"
    run = server.run(run_id)
    final = {**recorded["final"]["body"], "nodes": {}}
    assert_same_shape(final, run)
    assert run["error"]["nodeId"] == "m1"


def test_finished_run_gives_a_snapshot_and_closes(replayer: Replayer) -> None:
    recorded = recording("ws_finished_run")
    nodes = [{"id": "p1", "type": "input/text", "params": {"text": "x"}}]
    run_id = replayer.server.submit(nodes, "p1", wait=20).json()["runId"]
    frames = replayer.server.frames(run_id)
    assert len(frames) == 1
    assert_same_shape(recorded[0]["frame"], frames[0])


def test_takes(replayer: Replayer) -> None:
    run = next(exchanges(recording("ws_model_run_seed_random")))
    submitted = replayer.send(run).json()
    take_id = replayer.server.wait_until_final(submitted["runId"])["takes"][0]["id"]
    for exchange in exchanges(recording("takes")):
        url = exchange["request"]["url"].replace("take_33b9a51152ed", take_id)
        headers = {"Range": "bytes=0-15"} if exchange["status"] == 206 else {}
        response = replayer.server.http.get(url, headers=headers)
        assert response.status_code == exchange["status"]
        for header in ("content-type", "accept-ranges"):
            if header in exchange["headers"]:
                assert response.headers[header] == exchange["headers"][header]
        if exchange["status"] == 206:
            assert response.headers["content-range"].startswith("bytes 0-15/")
            assert len(response.content) == exchange["body"]["bytes"]
        if "etag" in exchange["headers"]:
            assert response.headers["etag"]
        if "id" in exchange["body"]:
            assert_same_shape(exchange["body"], response.json())


def test_cancel_and_queue(replayer: Replayer) -> None:
    server, recorded = replayer.server, recording("cancel_and_queue")
    nodes = [
        {"id": "p1", "type": "input/text", "params": {"text": "queue"}},
        {
            "id": "m1",
            "type": "alibaba/z-image-turbo",
            "params": {"steps": 40, "width": 256, "height": 256},
            "inputs": {"prompt": {"from": "p1", "output": "text"}},
        },
    ]
    ids = [server.submit(nodes, "m1").json()["runId"] for _ in range(3)]
    with server.socket(ids[0]) as socket:
        for text in socket:
            assert isinstance(text, str)
            if json.loads(text)["type"] == "progress":
                break
        listed = server.http.get("/v1/runs").json()
        assert_same_shape(recorded["list"]["body"], listed)
        assert [run["queuePosition"] for run in listed["runs"]] == [None, 0, 1]
        running = server.run(ids[0])
        assert running["nodes"]["p1"]["state"] == "done"
        assert running["nodes"]["m1"]["state"] == "running"
        queued = server.http.delete(f"/v1/runs/{ids[2]}")
        assert queued.json() == {"runId": ids[2], "status": "cancelled"}
        assert server.run(ids[2])["status"] == "cancelled"
        assert server.http.delete(f"/v1/runs/{ids[0]}").status_code == 200
        kinds = [json.loads(text)["type"] for text in socket if isinstance(text, str)]
    assert kinds[-1] == "cancelled"
    assert server.wait_until_final(ids[0])["status"] == "cancelled"
    _expect(server.http.delete(f"/v1/runs/{ids[0]}"), ("cancel_and_queue", "delete_again"))
    frames = server.frames(ids[1], "?after=0")
    assert frames[0]["type"] == "run_started"
    assert frames[-1]["type"] == "run_done"


def test_foreign_origin_is_refused(tiny_server: LiveServer) -> None:
    body = json.dumps(
        {"graph": {"schemaVersion": 1, "nodes": [{"id": "a", "type": "input/text"}]}, "target": "a"}
    )
    headers = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
    before = len(tiny_server.http.get("/v1/runs?all=1&limit=500").json()["runs"])
    _expect(
        tiny_server.http.post("/v1/runs", content=body, headers=headers),
        ("crash_restart_and_origin", "origin"),
    )
    assert (
        tiny_server.http.post(
            "/v1/runs", content=body, headers={"Content-Type": "text/plain"}
        ).status_code
        == 415
    )
    assert tiny_server.http.get("/v1/health", headers={"Host": "evil.example"}).status_code == 403
    assert len(tiny_server.http.get("/v1/runs?all=1&limit=500").json()["runs"]) == before
