"""The edges of HTTP: bodies, methods, assets, listings, pages, the trust rules."""

from __future__ import annotations

import io
import json
import threading
import zlib
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from inline_core.settings import Settings
from tests.fault_nodes import specs_with_faults
from tests.live import LiveServer, live_server

TEXT: list[dict[str, Any]] = [{"id": "a", "type": "input/text", "params": {"text": "x"}}]


def png(colour: tuple[int, ...] = (1, 2, 3), mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, (16, 8), colour).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{oops", 400, "malformed_json"),
        (b"", 400, "malformed_json"),
        (b"[]", 422, "invalid_request"),
        (b'"text"', 422, "invalid_request"),
        (b'{"graph": NaN, "target": "a"}', 400, "malformed_json"),
        (b'{"graph": 1e999, "target": "a"}', 400, "malformed_json"),
        (b'{"target": "\\ud800", "graph": {}}', 400, "malformed_json"),
        (b"[" * 100_000, 400, "malformed_json"),
        (b"\xff\xfe", 400, "malformed_json"),
    ],
)
def test_bad_bodies_are_client_errors(
    server: LiveServer, body: bytes, status: int, code: str
) -> None:
    reply = server.http.post("/v1/runs", content=body, headers={"content-type": "application/json"})
    assert reply.status_code == status
    assert reply.json()["error"]["code"] == code


def test_body_cap(tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path / "data", models_dir=tmp_path / "m", demo_model=False,
        max_body_mb=1, max_upload_mb=1, max_queue=2, start_paused=True,
    )  # fmt: skip
    with live_server(settings, specs_with_faults()) as server:
        headers = {"content-type": "application/json"}
        big = server.http.post("/v1/runs", content=b" " * (1024 * 1024 + 1), headers=headers)
        assert big.status_code == 413
        assert "INLINE_MAX_BODY_MB" in big.json()["error"]["message"]
        chunks = (b"\0" * 65536 for _ in range(64))
        upload = server.http.post("/v1/assets", content=chunks)
        assert upload.status_code == 413
        assert "INLINE_MAX_UPLOAD_MB" in upload.json()["error"]["message"]
        assert list((tmp_path / "data" / "assets").iterdir()) == []
        assert [server.submit(TEXT, "a").status_code for _ in range(3)] == [201, 201, 429]
        full = server.submit(TEXT, "a")
        assert full.json()["error"]["code"] == "queue_full"
        assert int(full.headers["retry-after"]) > 0


def test_assets_round_trip_and_feed_a_graph(server: LiveServer) -> None:
    stored = server.http.post("/v1/assets?name=fox.png", content=png()).json()
    again = server.http.post("/v1/assets", content=png()).json()
    assert stored["id"] == again["id"]
    assert (stored["kind"], stored["width"], stored["mediaType"]) == ("image", 16, "image/png")
    data = server.http.get(f"/v1/assets/{stored['id']}/bytes")
    assert data.content == png()
    assert server.http.get(f"/v1/assets/{stored['id']}").json()["name"] == "fox.png"
    assert len(server.http.get("/v1/assets").json()["assets"]) == 1
    for kind in ("image", "mask"):
        nodes = [
            {
                "id": "a",
                "type": f"input/{kind}",
                "params": {"asset": {"ref": "asset", "id": stored["id"]}},
            }
        ]
        assert server.submit(nodes, "a", wait=20).json()["status"] == "done"
    take = server.submit([{"id": "p", "type": "test/paint"}], "p", wait=20).json()["takes"][0]
    nodes = [
        {"id": "a", "type": "input/image", "params": {"asset": {"ref": "take", "id": take["id"]}}}
    ]
    assert server.submit(nodes, "a", wait=20).json()["status"] == "done"


def test_sounds_and_videos_are_probed(server: LiveServer, tmp_path: Path) -> None:
    import av
    import numpy as np

    with av.open(str(tmp_path / "s.wav"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4000), np.int16), "s16", "mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
    with av.open(str(tmp_path / "v.mp4"), "w") as container:
        video = container.add_stream("mpeg4", rate=10)
        video.width = video.height = 32
        for _ in range(10):
            container.mux(video.encode(av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8))))
        container.mux(video.encode(None))
    for file, kind in (("s.wav", "audio"), ("v.mp4", "video")):
        stored = server.http.post("/v1/assets", content=(tmp_path / file).read_bytes()).json()
        assert stored["kind"] == kind
        assert stored["durationMs"] > 0
        reference = {"ref": "asset", "id": stored["id"]}
        nodes = [{"id": "a", "type": f"input/{kind}", "params": {"asset": reference}}]
        assert server.submit(nodes, "a", wait=20).json()["status"] == "done"
        other = "video" if kind == "audio" else "audio"
        nodes = [{"id": "a", "type": f"input/{other}", "params": {"asset": reference}}]
        run = server.submit(nodes, "a", wait=20).json()
        assert run["error"]["code"] == "invalid_asset"


def test_paths_are_confined(server: LiveServer, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "x.png").write_bytes(png())
    (tmp_path / "secret.png").write_bytes(png())
    (allowed / "link.png").symlink_to(tmp_path / "secret.png")

    def outcome(path: str) -> Any:
        nodes = [
            {"id": "a", "type": "input/image", "params": {"asset": {"ref": "path", "path": path}}}
        ]
        run = server.submit(nodes, "a", wait=20).json()
        return run["error"]["code"] if run["error"] else run["status"]

    assert outcome(str(allowed / "x.png")) == "done"
    for bad in (
        tmp_path / "secret.png",
        allowed / ".." / "secret.png",
        allowed / "link.png",
        "x.png",
        "/etc/passwd\0",
    ):
        assert outcome(str(bad)) == "invalid_asset"
    for path in (
        "/v1/takes/..%2f..%2fetc%2fpasswd/bytes",
        "/v1/assets/..%2f..%2fx/bytes",
        "/..%2f..%2fpyproject.toml",
        "/%2e%2e/pyproject.toml",
        "/%00",
    ):
        reply = server.http.get(path)
        assert reply.status_code == 404, path
        assert reply.json()["error"]["code"] == "not_found"


def test_uploads_that_are_no_media(server: LiveServer) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")
        )

    header = (30000).to_bytes(4, "big") * 2 + b"\x01\0\0\0\0"
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    for data in (b"", b"<!doctype html>", b"\x80\x04K\x01.", bomb):
        reply = server.http.post("/v1/assets", content=data)
        assert reply.status_code == 422, data[:20]
        assert reply.json()["error"]["code"] == "invalid_asset"


def test_methods(server: LiveServer) -> None:
    head = server.http.head("/v1/health")
    assert (head.status_code, head.content) == (200, b"")
    wrong = server.http.put("/v1/queue/pause")
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "OPTIONS, POST"
    assert server.http.options("/v1/takes/x").headers["allow"] == "DELETE, GET, HEAD, OPTIONS"
    assert server.http.post("/v1/nope").status_code == 404
    assert server.http.post("/").status_code == 405


def test_pages_and_documents(server: LiveServer) -> None:
    page = server.http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    schema = server.http.get("/openapi.json").json()
    assert "/v1/runs/sweep" in schema["paths"]
    assert b"inline_runs" in server.http.get("/metrics").content


def test_a_front_end_root_is_served_instead(tmp_path: Path) -> None:
    front = tmp_path / "front"
    front.mkdir()
    (front / "index.html").write_text("<p>mine</p>")
    (front / "app.js").write_text("1")
    settings = Settings(
        data_dir=tmp_path / "d", models_dir=tmp_path / "m", demo_model=False, frontend_root=front
    )
    with live_server(settings) as server:
        assert server.http.get("/").text == "<p>mine</p>"
        assert server.http.get("/app.js").headers["content-type"].startswith("text/javascript")


def test_root_path(tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path / "d", models_dir=tmp_path / "m", demo_model=False, root_path="/render"
    )
    with live_server(settings, specs_with_faults()) as server:
        # As a proxy that strips the prefix sends it, and as one that keeps it.
        for prefix in ("", "/render"):
            assert server.http.get(f"{prefix}/v1/health").status_code == 200
            assert server.http.get(f"{prefix}/").status_code == 200
            assert server.http.put(f"{prefix}/v1/runs").status_code == 405
        slash = server.http.get("/render")
        assert (slash.status_code, slash.headers["location"]) == (308, "/render/")
        assert server.http.get("/openapi.json").json()["servers"][0]["url"] == "/render"


def test_host_and_origin(server: LiveServer) -> None:
    host = server.url.removeprefix("http://")
    assert server.http.get("/v1/health", headers={"Origin": f"http://{host}"}).status_code == 200
    assert server.http.get("/v1/health", headers={"Host": "localhost:1"}).status_code == 200
    for origin in ("http://evil.example", "null", f"http://{host}.evil.example"):
        assert server.http.get("/v1/health", headers={"Origin": origin}).status_code == 403
    for name in ("evil.example", "", "localhost.evil.example"):
        assert server.http.get("/v1/health", headers={"Host": name}).status_code == 403
    with (
        connect(
            f"ws://{host}/v1/runs/x/events", additional_headers={"Origin": "http://evil.example"}
        ) as socket,
        pytest.raises(ConnectionClosedError),
    ):
        socket.recv()
    assert socket.close_code == 4403


def test_an_allowed_site_gets_cors_and_others_nothing(tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path / "d", models_dir=tmp_path / "m", demo_model=False, warm_up=False,
        allowed_origins=["https://studio.example"], token="secret",
    )  # fmt: skip
    with live_server(settings, specs_with_faults()) as server:
        preflight = {
            "Origin": "https://studio.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        }
        allowed = server.http.options("/v1/runs", headers=preflight)
        assert allowed.headers["access-control-allow-origin"] == "https://studio.example"
        headers = {"Origin": "https://studio.example", "Authorization": "Bearer secret"}
        reply = server.http.get("/v1/health", headers=headers)
        assert reply.headers["access-control-allow-origin"] == "https://studio.example"
        other = server.http.get("/v1/health", headers={**headers, "Origin": "https://evil.example"})
        assert other.status_code == 403
        assert "access-control-allow-origin" not in other.headers


def test_token(tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path / "d", models_dir=tmp_path / "m", demo_model=False, token="secret"
    )
    with live_server(settings, specs_with_faults()) as server:
        refused = server.http.get("/v1/health")
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert (
            server.http.get("/v1/health", headers={"Authorization": "Bearer wrong"}).status_code
            == 401
        )
        assert (
            server.http.get("/v1/health", headers={"Authorization": "Bearer secret"}).status_code
            == 200
        )
        assert (
            server.http.get("/v1/health", headers={"X-Inline-Token": "secret"}).status_code == 200
        )
        with httpx.Client(base_url=server.url) as browser:
            signed_in = browser.get("/?token=secret&x=1")
            assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/?x=1")
            assert browser.get("/").status_code == 200
            cookie = signed_in.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
        with (
            connect(f"{server.url.replace('http', 'ws')}/v1/runs/x/events") as socket,
            pytest.raises(ConnectionClosedError),
        ):
            socket.recv()
        assert socket.close_code == 4401


def test_a_fresh_models_folder_gets_its_categories(server: LiveServer) -> None:
    assert (server.settings.models_dir / "diffusion_models").is_dir()
    assert server.http.get("/v1/health").json()["warnings"] == []


def test_validate_is_a_dry_run(server: LiveServer) -> None:
    body = {"graph": {"schemaVersion": 1, "nodes": TEXT}, "target": "a"}
    assert server.http.post("/v1/graphs/validate", json=body).json() == {
        "ok": True,
        "order": ["a"],
        "warnings": [],
    }
    nodes = [{"id": "a", "type": "nope"}, {"id": "b", "type": "nope"}]
    bad = server.http.post(
        "/v1/graphs/validate", json={"graph": {"schemaVersion": 1, "nodes": nodes}}
    )
    assert [problem["nodeId"] for problem in bad.json()["error"]["problems"]] == ["a", "b"]
    assert server.http.get("/v1/runs?all=true").json()["runs"] == []


def test_two_servers_on_one_data_folder(server: LiveServer) -> None:
    from inline_core.errors import AlreadyRunning
    from inline_core.server.services import build_services

    with pytest.raises(AlreadyRunning, match="Another server"):
        build_services(server.settings)


def test_many_submits_at_once_keep_their_order(server: LiveServer) -> None:
    server.http.post("/v1/queue/pause")
    replies: list[str] = []
    lock = threading.Lock()

    def submit() -> None:
        with httpx.Client(base_url=server.url) as client:
            for _ in range(20):
                body = {"graph": {"schemaVersion": 1, "nodes": TEXT}, "target": "a"}
                run_id = client.post("/v1/runs", json=body).json()["runId"]
                with lock:
                    replies.append(run_id)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(replies)) == 80
    listed = [run["runId"] for run in server.http.get("/v1/runs").json()["runs"]]
    assert sorted(listed) == sorted(replies)
    server.http.post("/v1/queue/resume")
    for run_id in replies:
        server.frames(run_id)
    started = {
        run_id: json.loads(server.http.get(f"/v1/runs/{run_id}").text)["startedAt"]
        for run_id in listed
    }
    assert list(started.values()) == sorted(started.values())
