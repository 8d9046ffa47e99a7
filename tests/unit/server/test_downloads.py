"""Downloads and requirements over the wire, from a hub on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from inline_core.families.registry import FAMILIES
from inline_core.settings import Settings
from tests import tiny
from tests.hub import FakeHub
from tests.live import Client, LiveServer, ServerProcess, live_server
from tests.unit.downloads.conftest import hub
from tests.unit.server.test_zimage_runs import one_click

__all__ = ["hub"]
REPO = "team/model"
CONTENT = os.urandom(200_000)
ASKED = {"repo": REPO, "file": "sub/vae.safetensors", "category": "vae"}
Z_IMAGE = "alibaba/z-image-turbo"


@pytest.fixture
def empty(hub: FakeHub, settings: Settings) -> Iterator[LiveServer]:
    """A server without models that knows the hub."""
    with live_server(settings) as running:
        yield running


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """The tiny Z-Image as it would be published: content by `repo/file`."""
    folder = tmp_path_factory.mktemp("published")
    tiny.save(tiny.original_keys(tiny.transformer().state_dict()), folder / "diffusion")
    tiny.save(tiny.ldm_keys(tiny.vae().state_dict()), folder / "vae", tiny.vae_metadata())
    tiny.save_text_encoder_file(folder / "text_encoder")
    found = {}
    for requirement in FAMILIES["z-image"].rules.requirements:
        for file in requirement.files:
            name = Path(file.file).name
            where = f"text_encoder.tokenizer/{name}" if requirement.role is None else requirement.id
            found[f"{file.repo}/{file.file}"] = (folder / where).read_bytes()
    return found


def publish(hub: FakeHub, published: Mapping[str, bytes]) -> None:
    for path, content in published.items():
        repo, name, file = path.split("/", 2)
        hub.add(f"{repo}/{name}", file, content, large=not file.endswith(".json"))


def events(server: Client) -> ClientConnection:
    address = server.url.replace("http://", "ws://")
    return connect(f"{address}/v1/downloads/events", open_timeout=20, ping_interval=None)


def until(
    socket: ClientConnection, found: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """The downloads in the frames up to the first for which a condition holds."""
    seen: list[dict[str, Any]] = []
    while True:
        frame = json.loads(socket.recv(20))
        news = frame["downloads"] if frame["type"] == "snapshot" else [frame["download"]]
        for download in news:
            seen.append(download)
            if found(download):
                return seen


def ended(server: Client, download_id: str) -> dict[str, Any]:
    final = {"done", "failed", "cancelled", "interrupted"}
    with events(server) as socket:
        return until(socket, lambda d: d["id"] == download_id and d["state"] in final)[-1]


def add(server: Client, body: Mapping[str, Any], status: int = 202) -> dict[str, Any]:
    reply = server.http.post("/v1/downloads", json=body)
    assert reply.status_code == status, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_a_download_has_its_shape_and_comes_in_events(empty: LiveServer, hub: FakeHub) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    gate = hub.hold(REPO, "sub/vae.safetensors", 50_000)
    with events(empty) as socket:
        assert json.loads(socket.recv(20)) == {"type": "snapshot", "downloads": []}
        added = add(empty, ASKED)
        assert added["state"] in {"queued", "running"}
        assert added["target"] == "vae/vae.safetensors"
        assert (added["category"], added["nodeType"], added["requirement"]) == ("vae", None, None)
        assert added["error"] is None
        gate.wait()
        seen = until(socket, lambda d: d["bytesDone"] == 50_000)
        assert seen[-1]["bytesTotal"] == len(CONTENT)
        gate.opened.set()
        seen += until(socket, lambda d: d["state"] == "done")
    states = list(dict.fromkeys(d["state"] for d in seen))
    assert states == ["queued", "running", "done"]
    done = empty.http.get(f"/v1/downloads/{added['id']}").json()
    assert done == seen[-1]
    assert done["files"] == [
        {
            "repo": REPO,
            "file": "sub/vae.safetensors",
            "revision": "main",
            "name": "vae.safetensors",
            "bytesDone": len(CONTENT),
            "bytesTotal": len(CONTENT),
        }
    ]
    assert empty.http.get("/v1/downloads").json() == {"downloads": [done]}
    assert (empty.settings.models_dir / "vae/vae.safetensors").read_bytes() == CONTENT
    # What is there is not fetched again, and its partial file was never on offer.
    assert add(empty, ASKED, 200) == done
    assert len(hub.gets()) == 1
    names = [file["name"] for file in empty.http.get("/v1/model-files").json()["files"]]
    assert names == ["vae.safetensors"]


def test_counts_of_bytes_are_paced(empty: LiveServer, hub: FakeHub) -> None:
    hub.add(REPO, "sub/vae.safetensors", os.urandom(8_000_000))
    with events(empty) as socket:
        add(empty, ASKED)
        seen = until(socket, lambda d: d["state"] == "done")
    counts = [d for d in seen if d["state"] == "running"]
    span_s = (seen[-1]["updatedAt"] - seen[0]["updatedAt"]) / 1000
    assert len(counts) <= 3 + span_s * 10
    assert seen[-1]["bytesDone"] == 8_000_000


def test_partial_files_are_not_offered(empty: LiveServer, hub: FakeHub) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    gate = hub.hold(REPO, "sub/vae.safetensors", 50_000)
    added = add(empty, ASKED)
    gate.wait()
    assert empty.http.get("/v1/model-files").json()["files"] == []
    cancelled = empty.http.delete(f"/v1/downloads/{added['id']}")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    again = empty.http.delete(f"/v1/downloads/{added['id']}")
    assert again.status_code == 409
    assert again.json()["error"]["details"] == {"state": "cancelled"}
    gate.opened.set()
    resumed = empty.http.post(f"/v1/downloads/{added['id']}/resume")
    assert (resumed.status_code, resumed.json()["id"]) == (202, added["id"])
    assert ended(empty, added["id"])["state"] == "done"
    resumed = empty.http.post(f"/v1/downloads/{added['id']}/resume")
    assert (resumed.status_code, resumed.json()["state"]) == (200, "done")
    assert empty.http.delete(f"/v1/downloads/{added['id']}").status_code == 409
    gone = empty.http.delete(f"/v1/downloads/{added['id']}", params={"discard": "true"})
    assert gone.status_code == 200
    assert empty.http.get(f"/v1/downloads/{added['id']}").status_code == 404
    assert empty.http.delete(f"/v1/downloads/{added['id']}").status_code == 404
    assert empty.http.post(f"/v1/downloads/{added['id']}/resume").status_code == 404
    assert (empty.settings.models_dir / "vae/vae.safetensors").is_file()


REFUSED: tuple[tuple[dict[str, Any], int, str], ...] = (
    ({"name": "../x.safetensors"}, 422, "plain relative path"),
    ({"name": "C:\\x.safetensors"}, 422, "plain relative path"),
    ({"name": "/x.safetensors"}, 422, "plain relative path"),
    ({"name": "x\0.safetensors"}, 422, "plain relative path"),
    ({"category": "nope"}, 422, "known: diffusion_models"),
    ({"file": "x.ckpt"}, 422, "pickle"),
    ({"file": "x.py"}, 422, "neither weights"),
    ({"repo": "x"}, 422, "organisation/name"),
    ({"repo": 3}, 422, "repo: Input should be"),
    ({"more": 3}, 422, "more: Extra inputs"),
    ({"category": "loras"}, 403, "leads out"),
)


def test_what_may_not_be_downloaded(empty: LiveServer, hub: FakeHub) -> None:
    (empty.settings.models_dir / "loras").rmdir()
    (empty.settings.models_dir / "loras").symlink_to("/")
    for change, status, words in REFUSED:
        reply = empty.http.post("/v1/downloads", json=ASKED | change)
        assert reply.status_code == status, reply.text
        assert words in reply.json()["error"]["message"]
    assert hub.asked == []
    assert empty.http.get("/v1/downloads").json() == {"downloads": []}


def test_bodies_that_are_none(empty: LiveServer) -> None:
    assert empty.http.post("/v1/downloads", json=[]).status_code == 422
    assert empty.http.post("/v1/downloads", json={}).status_code == 422
    assert empty.http.post("/v1/downloads", content=b"{").status_code == 415
    missing = {"nodeType": Z_IMAGE}
    reply = empty.http.post("/v1/downloads", json=missing)
    assert (reply.status_code, "requirement" in reply.text) == (422, True)
    unknown = {"nodeType": Z_IMAGE, "requirement": "soul"}
    reply = empty.http.post("/v1/downloads", json=unknown)
    assert reply.status_code == 404
    assert "diffusion, vae, text_encoder, tokenizer" in reply.json()["error"]["message"]
    unknown = {"nodeType": "nope", "requirement": "vae"}
    assert empty.http.post("/v1/downloads", json=unknown).status_code == 404


def test_a_file_in_the_way_and_a_hub_that_fails(
    empty: LiveServer, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = hub.add(REPO, "sub/vae.safetensors", CONTENT)
    (empty.settings.models_dir / "vae/vae.safetensors").write_bytes(b"mine")
    assert add(empty, ASKED, 409)["error"]["code"] == "conflict"
    file.status = 503
    assert add(empty, ASKED, 502)["error"]["code"] == "hub_unreachable"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert add(empty, ASKED, 409)["error"]["code"] == "hub_offline"
    fresh = add(empty, ASKED | {"name": "new.safetensors"}, 409)["error"]
    assert fresh["code"] == "hub_offline"
    assert "HF_HUB_OFFLINE" in fresh["message"]


def test_the_gate_stands_before_these_routes_too(empty: LiveServer, hub: FakeHub) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        reply = empty.http.post("/v1/downloads", json=ASKED, headers=headers)
        assert reply.status_code == 403
    reply = empty.http.post("/v1/downloads", content=json.dumps(ASKED))
    assert reply.status_code == 415
    assert hub.asked == []
    address = empty.url.replace("http://", "ws://")
    with (
        pytest.raises(ConnectionClosed) as closed,
        connect(f"{address}/v1/downloads/events", origin=Origin("http://evil.example")) as socket,
    ):
        socket.recv(20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4403


def test_requirements_of_an_empty_folder(empty: LiveServer, hub: FakeHub) -> None:
    found = empty.http.get(f"/v1/models/{Z_IMAGE}/requirements").json()
    assert (found["allPresent"], found["estimate"]) == (False, None)
    assert [part["id"] for part in found["components"]] == [
        "diffusion",
        "vae",
        "text_encoder",
        "tokenizer",
    ]
    vae = found["components"][1]
    assert vae == {
        "id": "vae",
        "label": "VAE",
        "role": "vae",
        "category": "vae",
        "present": False,
        "fits": None,
        "found": None,
        "demo": False,
        "localPath": "vae/ae.safetensors",
        "repo": "Comfy-Org/z_image_turbo",
        "file": "split_files/vae/ae.safetensors",
        "source": "Comfy-Org/z_image_turbo/split_files/vae/ae.safetensors",
        "sizeBytes": 335_000_000,
        "optional": False,
        "download": None,
    }
    assert found["components"][3]["localPath"] == "text_encoders/qwen_3_4b.tokenizer"
    none = empty.http.get("/v1/models/load/vae/requirements").json()
    assert none == {"components": [], "allPresent": True, "estimate": None}
    assert empty.http.get("/v1/models/no/such/requirements").status_code == 404
    assert empty.http.get(f"/v1/models/{Z_IMAGE}").json()["type"] == Z_IMAGE
    assert hub.asked == []


def test_requirements_are_met_under_other_names(tiny_server: LiveServer) -> None:
    found = tiny_server.http.get(f"/v1/models/{Z_IMAGE}/requirements").json()
    assert found["allPresent"] is True
    names = [(part["id"], part["found"], part["fits"]) for part in found["components"]]
    assert names == [
        ("diffusion", "z.safetensors", True),
        ("vae", "ae.safetensors", True),
        ("text_encoder", "qwen", True),
        ("tokenizer", "qwen", True),
    ]
    assert found["estimate"]["plan"] == "resident"


def test_the_demo_model_is_told_apart(settings: Settings) -> None:
    with live_server(settings.model_copy(update={"demo_model": True})) as server:
        found = server.http.get(f"/v1/models/{Z_IMAGE}/requirements").json()
    assert found["allPresent"] is True
    assert [part["demo"] for part in found["components"]] == [True] * 4


def test_a_part_that_does_not_go_with_the_model_is_no_help(empty: LiveServer, hub: FakeHub) -> None:
    folder = empty.settings.models_dir
    tiny.save(
        tiny.original_keys(tiny.transformer().state_dict()),
        folder / "diffusion_models/z.safetensors",
    )
    tiny.save_text_encoder_folder(folder / "text_encoders/wide", tiny.text_encoder(hidden_size=128))
    empty.services.catalog.refresh()
    parts = empty.http.get(f"/v1/models/{Z_IMAGE}/requirements").json()["components"]
    encoder = parts[2]
    assert (encoder["present"], encoder["fits"], encoder["found"]) == (False, False, "wide")
    assert (parts[0]["present"], parts[3]["present"]) == (True, False)


def test_all_requirements_are_downloaded_and_a_picture_is_made(
    empty: LiveServer, hub: FakeHub, published: Mapping[str, bytes]
) -> None:
    publish(hub, published)
    graph = one_click()
    # A run that lacks its files says so, and fetches nothing.
    failed = empty.submit(*graph, wait=50).json()
    assert (failed["status"], failed["error"]["code"]) == ("error", "model_missing")
    assert hub.asked == []
    parts = empty.http.get(f"/v1/models/{Z_IMAGE}/requirements").json()["components"]
    for part in parts:
        added = add(empty, {"nodeType": Z_IMAGE, "requirement": part["id"]})
        assert (added["nodeType"], added["requirement"]) == (Z_IMAGE, part["id"])
        assert added["target"] == part["localPath"]
        done = ended(empty, added["id"])
        assert done["state"] == "done", done
    found = empty.http.get(f"/v1/models/{Z_IMAGE}/requirements").json()
    assert found["allPresent"], found
    assert found["estimate"]["fits"] is True
    assert {part["download"]["state"] for part in found["components"]} == {"done"}
    asked = len(hub.asked)
    done = empty.submit(*graph, wait=50).json()
    assert done["status"] == "done", done["error"]
    assert len(hub.asked) == asked, "a render reaches no hub"


def test_a_killed_server_leaves_what_can_be_resumed(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "hf_averysecrettoken"
    monkeypatch.setenv("HF_TOKEN", token)
    hub.token = token
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    gate = hub.hold(REPO, "sub/vae.safetensors", 100_000)
    environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "cache")}
    doomed = ServerProcess(tmp_path / "data", tmp_path / "models", **environment)
    with events(doomed) as socket:
        added = add(doomed, ASKED)
        gate.wait()
        until(socket, lambda d: d["bytesDone"] == 100_000)
        doomed.kill()
    asked = len(hub.asked)
    server = ServerProcess(tmp_path / "data", tmp_path / "models", **environment)
    try:
        found = server.http.get(f"/v1/downloads/{added['id']}").json()
        assert found["state"] == "interrupted"
        assert 0 < found["bytesDone"] <= 100_000
        assert len(hub.asked) == asked, "a start fetches nothing"
        gate.opened.set()
        reply = server.http.post(f"/v1/downloads/{added['id']}/resume")
        done = ended(server, added["id"])
        assert done["state"] == "done", done
        assert token not in reply.text + json.dumps(done)
        assert hub.gets()[-1].range == f"bytes={found['bytesDone']}-"
    finally:
        assert server.stop() == 0
    assert (tmp_path / "models/vae/vae.safetensors").read_bytes() == CONTENT
    assert token not in (tmp_path / "data/server.log").read_text()
    # The library itself asked for nothing more and kept nothing.
    assert {
        asked.path.split("/")[3 if "/resolve/" in asked.path else 1] for asked in hub.asked
    } == {
        "resolve",
        "blob",
    }
    assert not (tmp_path / "cache").exists()


def test_the_library_of_the_hub_is_not_loaded_at_start() -> None:
    code = "import sys, inline_core.server.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "inline_core.downloads.hub" in loaded
    assert not loaded & {"huggingface_hub", "httpx2", "torch"}


def test_a_server_that_stops_interrupts_its_downloads(hub: FakeHub, settings: Settings) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    gate = hub.hold(REPO, "sub/vae.safetensors", 100_000)
    with live_server(settings) as server:
        added = add(server, ASKED)
        gate.wait()
        with events(server) as socket:
            until(socket, lambda d: d["id"] == added["id"])
            server.close()
            with pytest.raises(ConnectionClosed):
                until(socket, lambda _: False)
    gate.opened.set()
    with live_server(settings) as server:
        (found,) = server.http.get("/v1/downloads").json()["downloads"]
        assert found["state"] == "interrupted"
        assert server.http.post(f"/v1/downloads/{found['id']}/resume").status_code == 202
        assert ended(server, found["id"])["state"] == "done"
