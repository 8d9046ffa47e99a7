"""What the server says of itself, who may use it, and that it can be turned off."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from inline_core.importers.comfyui.mapping.registry import entries
from inline_core.importers.comfyui.node_table import NodeTable
from inline_core.server.comfyui.declarations import known_types
from tests.unit.server.comfyui.prompts import ComfyClient, checkpoint_of, comfy_server

ROUTES = [
    "/prompt", "/history", "/queue", "/object_info", "/system_stats", "/embeddings", "/models",
    "/models/loras", "/features", "/extensions",
]  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "/api"])
@pytest.mark.parametrize("path", ROUTES)
def test_routes_stand_at_the_root_and_below_api(
    client: ComfyClient, path: str, prefix: str
) -> None:
    assert client.http.get(f"{prefix}{path}").status_code == 200


def test_the_page_is_not_hidden(client: ComfyClient) -> None:
    assert client.http.get("/").text.lstrip().startswith("<!doctype html>")
    assert client.http.get("/docs").status_code == 200


def test_declarations_have_every_key_and_agree_with_the_table(client: ComfyClient) -> None:
    info = client.http.get("/object_info").json()
    assert info.keys() == entries().keys()
    for name, entry in info.items():
        assert entry["name"] == name
        assert set(entry["input"]) == {"required", "optional", "hidden"}
        assert entry["input_order"] == {part: list(group) for part, group in entry["input"].items()}
        count = len(known_types()[name].get("outputs", ()))
        for key in ("output", "output_is_list", "output_name"):
            assert len(entry[key]) == count
    # The table that the importer makes of it knows the same inputs as its own.
    ours, theirs = NodeTable(known_types()), NodeTable(info)
    for name in info:
        mine, told = ours.find(name), theirs.find(name)
        assert mine is not None
        assert told is not None
        assert list(told.by_name) == list(mine.by_name)
        assert told.output_node == mine.output_node


def test_the_form_of_a_declaration(client: ComfyClient) -> None:
    sampler = client.http.get("/object_info/KSampler").json()["KSampler"]
    required = sampler["input"]["required"]
    assert required["seed"] == [
        "INT",
        {"default": 0, "min": 0, "max": 2**64 - 1, "control_after_generate": True},
    ]
    assert required["model"] == ["MODEL"]
    assert required["sampler_name"][0][:2] == ["euler", "euler_cfg_pp"]
    assert (sampler["output"], sampler["output_node"]) == (["LATENT"], False)
    save = client.http.get("/object_info/SaveImage").json()["SaveImage"]
    assert save["input"]["hidden"] == {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"}
    assert save["output_node"] is True
    resize = client.http.get("/object_info/ResizeImageMaskNode").json()["ResizeImageMaskNode"]
    assert resize["input"]["required"]["scale_method"][0] == "COMBO"
    assert "area" in resize["input"]["required"]["scale_method"][1]["options"]
    assert client.http.get("/object_info/NoSuchNode").json() == {}


def test_files_of_models_are_listed_as_they_come(model_client: ComfyClient) -> None:
    name = checkpoint_of(model_client)
    assert name in model_client.http.get("/models/checkpoints").json()
    assert model_client.http.get("/models/nothing").status_code == 404
    told = model_client.http.get("/view_metadata/checkpoints", params={"filename": name})
    assert told.status_code in {200, 404}
    missing = model_client.http.get("/view_metadata/checkpoints", params={"filename": "../x"})
    assert missing.status_code == 404


def test_memory_can_be_freed(client: ComfyClient) -> None:
    assert client.http.post("/free", json={"unload_models": True}).status_code == 200
    assert client.http.post("/free", json={"free_memory": True}).status_code == 200
    assert client.http.post("/free", content=b"").status_code == 200


def test_the_machine_is_told_without_its_secrets(client: ComfyClient) -> None:
    stats = client.http.get("/system_stats").json()
    assert stats["system"]["argv"] == ["main.py"]
    assert stats["devices"][0]["vram_total"] > 0


def test_errors_have_the_shape_that_clients_read(client: ComfyClient) -> None:
    broken = client.http.post("/prompt", content=b"{")
    assert (broken.status_code, broken.json()["error"]["type"]) == (400, "malformed_json")
    assert client.http.get("/history?max_items=x").json()["error"]["type"] == "invalid_request"


def test_an_error_inside_has_that_shape_too(
    model_client: ComfyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("inline_core.server.comfyui.history.queue", fails)
    reply = model_client.http.get("/queue")
    assert (reply.status_code, reply.json()["error"]["type"]) == (500, "internal")
    assert "ZeroDivision" not in reply.text


def test_other_sites_and_strangers_are_kept_out(tmp_path: Path) -> None:
    with comfy_server(tmp_path, token="secret") as server:
        anonymous = httpx.Client(base_url=server.url)
        for path in ("/prompt", "/api/queue", "/view?filename=x"):
            assert anonymous.get(path).status_code == 401
            assert anonymous.get(path, headers={"Authorization": "Bearer secret"}).status_code in {
                200,
                404,
            }
        address = server.url.replace("http://", "ws://")
        for path in ("/ws", "/api/ws"):
            with connect(f"{address}{path}") as socket, pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=20)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4401
        with connect(f"{address}/ws?clientId=me&token=secret") as socket:
            assert "sid" in socket.recv(timeout=20)
        anonymous.close()


def test_a_foreign_origin_is_refused(client: ComfyClient) -> None:
    headers = {"Origin": "http://elsewhere.example"}
    assert client.http.post("/prompt", content=b"{}", headers=headers).status_code == 403
    address = client.url.replace("http://", "ws://")
    with (
        connect(f"{address}/ws", additional_headers=headers) as socket,
        pytest.raises(ConnectionClosed) as closed,
    ):
        socket.recv(timeout=20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4403


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    with comfy_server(tmp_path, comfyui_api=False) as server:
        for path in (*ROUTES, "/api/prompt", "/view"):
            assert server.http.get(path).status_code == 404
        with (
            connect(server.url.replace("http://", "ws://") + "/ws") as socket,
            pytest.raises(ConnectionClosed),
        ):
            socket.recv(timeout=20)
