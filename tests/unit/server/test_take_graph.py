"""The recipe of a take: from the database or out of its file, posted again, the same picture."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from sqlalchemy import delete

from inline_core.media.png import read_provenance
from inline_core.runs.tables import run_takes
from inline_core.settings import Settings
from tests.fault_nodes import specs_with_faults
from tests.live import LiveServer, live_server
from tests.unit.server.test_zimage_runs import SIZE, edge, one_click, pixels, primitives, run


@contextmanager
def exact_server(folder: Path, models: Path, **more: Any) -> Iterator[LiveServer]:
    """A server whose pictures are bit-repeatable: each has a forward pass of its own."""
    settings = Settings(
        data_dir=folder / "data",
        models_dir=models,
        demo_model=False,
        threads=1,
        walkers=1,
        max_batch=1,
        allowed_roots=[folder / "allowed"],
        **more,
    )
    (folder / "allowed").mkdir()
    with live_server(settings, specs_with_faults()) as running:
        yield running


@pytest.fixture(scope="module")
def tiny_server(
    tiny_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    with exact_server(tmp_path_factory.mktemp("exact"), tiny_models) as running:
        yield running


@pytest.fixture(scope="module")
def bare_server(
    tiny_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    """A server that writes no recipes into its files and takes small uploads only."""
    small = {"metadata": False, "max_upload_mb": 1, "max_body_mb": 1}
    with exact_server(tmp_path_factory.mktemp("bare"), tiny_models, **small) as running:
        yield running


def recipe_of(server: LiveServer, take: dict[str, Any]) -> dict[str, Any]:
    reply = server.http.get(f"/v1/takes/{take['id']}/graph")
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def file_of(server: LiveServer, take: dict[str, Any]) -> bytes:
    return server.http.get(f"/v1/takes/{take['id']}/bytes").content


def send(server: LiveServer, data: bytes, kind: str = "image/png") -> httpx.Response:
    return server.http.post("/v1/import", content=data, headers={"content-type": kind})


def imported(server: LiveServer, data: bytes, kind: str = "image/png") -> dict[str, Any]:
    reply = send(server, data, kind)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def again(server: LiveServer, recipe: dict[str, Any]) -> dict[str, Any]:
    """Run a recipe anew; it must have made exactly one take."""
    body = {"graph": recipe["graph"], "target": recipe["target"], "force": True, "strict": True}
    reply = server.http.post("/v1/runs", json=body, params={"wait": 50})
    assert reply.status_code == 201, reply.text
    done: dict[str, Any] = reply.json()
    assert done["status"] == "done", done["error"]
    assert len(done["takes"]) == 1
    take: dict[str, Any] = done["takes"][0]
    assert take["nodeId"] == recipe["target"]
    return take


def assert_made_again(
    server: LiveServer, take: dict[str, Any], *, metadata: bool = True
) -> dict[str, Any]:
    """Both ways to the recipe give one graph, and that graph the same pixels."""
    recipe = recipe_of(server, take)
    assert recipe["warnings"] == []
    assert recipe["params"] == take["params"]
    assert recipe["provenance"] == take["provenance"]
    if metadata:
        out_of_file = imported(server, file_of(server, take))
        report = out_of_file.pop("report")
        assert report == {"source": "inline-core", "version": recipe["version"], "warnings": []}
        assert out_of_file == {key: recipe[key] for key in recipe if key != "warnings"}
    made = again(server, recipe)
    assert np.array_equal(pixels(server, made), pixels(server, take))
    assert made["id"] != take["id"]
    # The new picture's recipe is the same again: nothing grows.
    assert recipe_of(server, made)["graph"] == recipe["graph"]
    return recipe


def params_of(recipe: dict[str, Any], node_id: str) -> dict[str, Any]:
    found: dict[str, Any] = next(n for n in recipe["graph"]["nodes"] if n["id"] == node_id)[
        "params"
    ]
    return found


def test_one_picture_with_a_random_seed(tiny_server: LiveServer) -> None:
    first = run(tiny_server, one_click(seed=-1))
    recipe = assert_made_again(tiny_server, first["takes"][0])
    assert (recipe["index"], recipe["count"], recipe["target"]) == (0, 1, "m")
    assert recipe["version"] == "0.1.0"
    assert recipe["assets"] == []
    params = params_of(recipe, "m")
    assert params["seed"] == first["seeds"]["m"] >= 0
    # The files that the server picked are named.
    assert params["model"] == "z.safetensors"
    assert params["vae"] == "ae.safetensors"
    assert params["text_encoder"]


def test_primitives(tiny_server: LiveServer) -> None:
    take = run(tiny_server, primitives(seed=-1, cfg=2.0, negative="blue"))["takes"][0]
    recipe = assert_made_again(tiny_server, take)
    assert params_of(recipe, "vae") == {"file": "ae.safetensors"}


def test_each_picture_of_a_batch_alone(tiny_server: LiveServer) -> None:
    batch = run(tiny_server, primitives(batch=3, seed=40))
    assert len(batch["takes"]) == 3
    for index, take in enumerate(batch["takes"]):
        recipe = assert_made_again(tiny_server, take)
        assert (recipe["index"], recipe["count"]) == (index, 3)
        assert params_of(recipe, recipe["target"]) == {"index": index, "length": 1, "clip": False}
        assert recipe["target"] == f"d-{index + 1}"


def test_a_pick_uses_what_is_there_and_stores_nothing_else(tiny_server: LiveServer) -> None:
    nodes, target = primitives(batch=2, seed=50)
    batch = run(tiny_server, (nodes, target))
    pick = {
        "id": "one",
        "type": "image/from-batch",
        "params": {"index": 1},
        "inputs": {"image": edge("d", "image")},
    }
    alone = run(tiny_server, ([*nodes, pick], "one"))
    assert alone["nodes"]["d"]["state"] == alone["nodes"]["s"]["state"] == "cached"
    assert [take["nodeId"] for take in alone["takes"]] == ["one"]
    assert np.array_equal(
        pixels(tiny_server, alone["takes"][0]), pixels(tiny_server, batch["takes"][1])
    )
    assert alone["takes"][0]["provenance"]["seed"] == 51
    # Something else that reads the batch makes its pictures takes again.
    both = {"id": "again", "type": "image/from-batch", "inputs": {"image": edge("d", "image")}}
    other = {
        "id": "l2",
        "type": "vae/encode",
        "inputs": {"vae": edge("vae", "vae"), "image": edge("d", "image")},
    }
    end = {
        "id": "end",
        "type": "vae/decode",
        "inputs": {"vae": edge("vae", "vae"), "latent": edge("l2", "latent")},
    }
    more = run(tiny_server, ([*nodes, both, other, end], "end"))
    assert [take["nodeId"] for take in more["takes"]] == ["d", "d", "end", "end"]


def test_a_fresh_batch_behind_a_pick_is_not_mistaken_for_takes(tiny_server: LiveServer) -> None:
    nodes, target = primitives(batch=2, seed=60)
    pick = {"id": "one", "type": "image/from-batch", "inputs": {"image": edge("d", "image")}}
    first = run(tiny_server, ([*nodes, pick], "one"))
    assert [take["nodeId"] for take in first["takes"]] == ["one"]
    whole = run(tiny_server, (nodes, target))
    assert [take["nodeId"] for take in whole["takes"]] == ["d", "d"]
    assert np.array_equal(
        pixels(tiny_server, first["takes"][0]), pixels(tiny_server, whole["takes"][0])
    )


def test_a_pick_beyond_the_batch_says_so(tiny_server: LiveServer) -> None:
    nodes, _ = primitives(batch=2, seed=60)
    pick = {
        "id": "one",
        "type": "image/from-batch",
        "params": {"index": 1, "length": 2},
        "inputs": {"image": edge("d", "image")},
    }
    found = tiny_server.submit([*nodes, pick], "one", wait=50).json()
    assert found["error"]["code"] == "invalid_param"
    assert "the batch has 2 pictures" in found["error"]["message"]
    assert found["error"]["nodeId"] == "one"


def uploaded(server: LiveServer, colour: tuple[int, int, int]) -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (128, 64), colour).save(buffer, "PNG")
    asset: str = server.http.post("/v1/assets", content=buffer.getvalue()).json()["id"]
    return asset


def from_upload(asset: str) -> tuple[list[dict[str, Any]], str]:
    source = {"id": "i", "type": "input/image", "params": {"asset": {"ref": "asset", "id": asset}}}
    return one_click({"image": edge("i", "image")}, [source], strength=0.7, seed=-1)


def test_a_picture_from_a_picture(tiny_server: LiveServer) -> None:
    asset = uploaded(tiny_server, (10, 200, 30))
    take = run(tiny_server, from_upload(asset))["takes"][0]
    recipe = assert_made_again(tiny_server, take)
    sha256 = asset.removeprefix("sha256-")
    assert recipe["assets"] == [
        {"node": "i", "param": "asset", "sha256": sha256, "available": True}
    ]
    tiny_server.services.assets.path(sha256, "png").unlink()
    gone = recipe_of(tiny_server, take)
    assert gone["assets"] == [{"node": "i", "param": "asset", "sha256": sha256, "available": False}]
    assert [(w["code"], w["nodeId"]) for w in gone["warnings"]] == [("asset_missing", "i")]
    assert (
        imported(tiny_server, file_of(tiny_server, take))["report"]["warnings"] == gone["warnings"]
    )


def test_a_picture_from_a_take_and_from_a_file(tiny_server: LiveServer) -> None:
    first = run(tiny_server, one_click(seed=70))["takes"][0]
    reference = {"ref": "take", "id": first["id"]}
    source = {"id": "i", "type": "input/image", "params": {"asset": reference}}
    take = run(tiny_server, one_click({"image": edge("i", "image")}, [source]))["takes"][0]
    recipe = assert_made_again(tiny_server, take)
    assert recipe["assets"][0]["sha256"] == first["hash"].removeprefix("sha256-")
    assert recipe["assets"][0]["available"]
    assert tiny_server.http.delete(f"/v1/takes/{first['id']}").status_code == 204
    assert recipe_of(tiny_server, take)["assets"][0] == {
        "node": "i",
        "param": "asset",
        "sha256": None,
        "available": False,
    }
    path = tiny_server.settings.allowed_roots[0] / "in.png"
    Image.new("RGB", (128, 64), (1, 2, 3)).save(path)
    source = {
        "id": "i",
        "type": "input/image",
        "params": {"asset": {"ref": "path", "path": str(path)}},
    }
    take = run(tiny_server, one_click({"image": edge("i", "image")}, [source]))["takes"][0]
    assert assert_made_again(tiny_server, take)["assets"][0]["available"]


def test_a_deleted_picture_can_be_made_again(tiny_server: LiveServer) -> None:
    take = run(tiny_server, one_click(seed=80))["takes"][0]
    before = pixels(tiny_server, take)
    assert tiny_server.http.delete(f"/v1/takes/{take['id']}").status_code == 204
    made = again(tiny_server, recipe_of(tiny_server, take))
    assert np.array_equal(pixels(tiny_server, made), before)


def test_a_take_outlives_the_run_that_made_it(tiny_server: LiveServer) -> None:
    first = run(tiny_server, one_click(seed=81))
    second = run(tiny_server, one_click(seed=81))
    take = first["takes"][0]
    assert second["takes"][0]["id"] == take["id"]
    recipe = recipe_of(tiny_server, take)
    assert tiny_server.http.delete(f"/v1/runs/{first['runId']}/record").status_code == 204
    assert recipe_of(tiny_server, take) == recipe
    assert tiny_server.http.delete(f"/v1/runs/{second['runId']}/record").status_code == 204
    gone = tiny_server.http.get(f"/v1/takes/{take['id']}/graph")
    assert gone.status_code == 410
    assert gone.json()["error"]["code"] == "output_unavailable"


def test_takes_of_an_interrupted_attempt(tiny_server: LiveServer) -> None:
    done = run(tiny_server, primitives(batch=2, seed=85))
    before = [recipe_of(tiny_server, take) for take in done["takes"]]
    statement = delete(run_takes).where(run_takes.c.run_id == done["runId"])
    services = tiny_server.services
    services.database.write(lambda transaction: transaction.connection.execute(statement)).result()
    assert [recipe_of(tiny_server, take) for take in done["takes"]] == before


def test_unknown_takes_are_not_found(tiny_server: LiveServer) -> None:
    reply = tiny_server.http.get("/v1/takes/take_000000000000/graph")
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "not_found"


def test_without_metadata_the_database_knows(bare_server: LiveServer) -> None:
    for graph in (one_click(seed=-1), primitives(batch=2, seed=-1)):
        for take in run(bare_server, graph)["takes"]:
            data = file_of(bare_server, take)
            assert read_provenance(data) is None
            assert_made_again(bare_server, take, metadata=False)
            refused = send(bare_server, data)
            assert refused.status_code == 422
            assert refused.json()["error"]["code"] == "no_recipe"
            assert "INLINE_METADATA" in refused.json()["error"]["message"]


def test_size_caps(bare_server: LiveServer) -> None:
    large = b"\x89PNG\r\n\x1a\n" + bytes(2 * 1024 * 1024)
    for kind, setting in (("image/png", "UPLOAD"), ("application/json", "BODY")):
        reply = send(bare_server, large, kind)
        assert reply.status_code == 413
        assert setting in reply.json()["error"]["message"]
    assert not list(bare_server.settings.assets_dir.glob(".part-*"))


def chunk(kind: bytes, body: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + body))
    return struct.pack(">I", len(body)) + kind + body + check


def with_texts(**texts: str) -> bytes:
    info = PngInfo()
    for name, text in texts.items():
        info.add_text(name.replace("_", "-"), text, zip=name == "zipped")
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


def picture(kind: str, **more: Any) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, kind, **more)
    return buffer.getvalue()


def comfy_exif() -> bytes:
    exif = Image.Exif()
    exif[0x0110] = 'prompt:{"3": {"class_type": "KSampler"}}'
    return exif.tobytes()


GRAPH = {
    "schemaVersion": 1,
    "nodes": [
        {"id": "p", "type": "input/text", "params": {"text": "a"}},
        {
            "id": "m",
            "type": "alibaba/z-image-turbo",
            "inputs": {"prompt": {"from": "p", "output": "text"}},
            "params": {"steps": 2, "seed": 3, **SIZE},
        },
    ],
}


def a_text(body: bytes) -> bytes:
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return head + chunk(b"iTXt", body) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (with_texts(), "no_recipe", "texts in the file: none"),
        (with_texts(zipped="x", Comment="y"), "no_recipe", "Comment, zipped"),
        (with_texts(prompt="{}", workflow="{}"), "no_recipe", "made by ComfyUI"),
        (with_texts(inline_core="{"), "no_recipe", "damaged"),
        (with_texts(inline_core='{"graph": NaN}'), "no_recipe", "damaged"),
        (with_texts(inline_core='["x"]'), "invalid_graph", "schemaVersion"),
        (with_texts(inline_core="[" * 5000), "no_recipe", "damaged"),
        (with_texts()[:40], "invalid_asset", "ends in the middle"),
        (b"\x89PNG\r\n\x1a\n", "invalid_asset", "ends in the middle"),
        (with_texts(Comment="hello").replace(b"hello", b"hallo"), "invalid_asset", "checksum"),
        (a_text(b"inline-core\x00\x01\x00\x00\x00nonsense"), "invalid_asset", "damaged"),
        (
            a_text(b"inline-core\x00\x01\x00\x00\x00" + zlib.compress(b"{}")[:-3]),
            "invalid_asset",
            "cut",
        ),
        (a_text(b"inline-core\x00\x01"), "invalid_asset", "damaged"),
        (picture("WEBP"), "no_recipe", "PNG made here"),
        (picture("JPEG"), "no_recipe", "PNG made here"),
        (picture("WEBP", exif=comfy_exif()), "no_recipe", "made by ComfyUI"),
        (picture("JPEG", exif=comfy_exif()), "no_recipe", "made by ComfyUI"),
        (b"nothing at all", "no_recipe", "PNG made here"),
    ],
    ids=range(18),
)
def test_files_without_a_recipe(
    tiny_server: LiveServer, data: bytes, code: str, words: str
) -> None:
    for kind in ("image/png", "application/octet-stream"):
        reply = send(tiny_server, data, kind)
        assert reply.status_code == 422, reply.text
        assert reply.json()["error"]["code"] == code
        assert words in reply.json()["error"]["message"]


def test_a_text_that_unpacks_to_too_much(tiny_server: LiveServer) -> None:
    packed = zlib.compress(bytes(70 * 1024 * 1024), 1)
    reply = send(tiny_server, a_text(b"inline-core\x00\x01\x00\x00\x00" + packed))
    assert reply.json()["error"]["code"] == "invalid_asset"
    assert "too large" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("document", "status", "code", "words"),
    [
        ("{", 400, "malformed_json", "not valid JSON"),
        ('{"graph": Infinity}', 400, "malformed_json", "not valid JSON"),
        ("[]", 422, "no_recipe", "JSON of a graph"),
        ({}, 422, "invalid_graph", "schemaVersion"),
        ({"graph": GRAPH, "target": "x"}, 422, "invalid_graph", "'x'"),
        ({"graph": {"schemaVersion": 1, "nodes": []}}, 422, "invalid_graph", "target None"),
        ({"graph": {**GRAPH, "schemaVersion": 2}}, 422, "invalid_graph", "schemaVersion"),
        ({"3": {"class_type": "KSampler", "inputs": {}}}, 422, "no_recipe", "ComfyUI"),
        ({"prompt": {"3": {"class_type": "KSampler"}}}, 422, "no_recipe", "ComfyUI"),
        ({"workflow": {"nodes": [], "links": []}}, 422, "no_recipe", "ComfyUI"),
        ({"graph": None}, 422, "invalid_graph", "object"),
        ({"last_node_id": 3, "nodes": [], "links": []}, 422, "no_recipe", "ComfyUI"),
    ],
)
def test_json_that_is_no_recipe(
    tiny_server: LiveServer, document: Any, status: int, code: str, words: str
) -> None:
    text = document if isinstance(document, str) else json.dumps(document)
    reply = send(tiny_server, text.encode(), "application/json")
    assert reply.status_code == status, reply.text
    assert reply.json()["error"]["code"] == code
    assert words in reply.json()["error"]["message"]


def test_json_of_a_graph(tiny_server: LiveServer) -> None:
    for document in (GRAPH, {"graph": GRAPH}, {"graph": GRAPH, "target": "m"}):
        found = imported(
            tiny_server, b"\xef\xbb\xbf " + json.dumps(document).encode(), "application/json"
        )
        assert found["target"] == "m"
        assert found["graph"] == GRAPH
        assert found["report"] == {"source": "inline-core", "version": None, "warnings": []}
        assert (found["index"], found["count"], found["params"]) == (None, None, {})
        assert again(tiny_server, found)["nodeId"] == "m"
    odd: dict[str, Any] = {
        "graph": GRAPH,
        "index": "x",
        "params": [],
        "provenance": None,
        "version": 3,
    }
    found = imported(tiny_server, json.dumps(odd).encode(), "application/json")
    assert (found["index"], found["params"], found["version"]) == (None, {}, None)


def test_the_reply_of_the_graph_route_can_be_imported(tiny_server: LiveServer) -> None:
    recipe = recipe_of(tiny_server, run(tiny_server, one_click(seed=90))["takes"][0])
    found = imported(tiny_server, json.dumps(recipe).encode(), "application/json")
    assert {key: found[key] for key in recipe if key != "warnings"} == {
        key: recipe[key] for key in recipe if key != "warnings"
    }


def test_what_is_missing_here_is_said(tiny_server: LiveServer) -> None:
    nodes = [
        {"id": "l", "type": "load/vae", "params": {"file": "gone.safetensors"}},
        {"id": "x", "type": "nobody/knows", "inputs": {"a": edge("l", "vae")}},
    ]
    document = {"schemaVersion": 1, "nodes": nodes}
    found = imported(tiny_server, json.dumps(document).encode(), "application/json")
    assert found["target"] == "x"
    assert {(w["code"], w["nodeId"]) for w in found["report"]["warnings"]} == {
        ("param_not_an_option", "l"),
        ("unknown_node_type", "x"),
    }
    picked = {
        "graph": {"schemaVersion": 1, "nodes": [{"id": "l", "type": "load/vae"}]},
        "provenance": {"vae": {"name": "other.safetensors"}},
    }
    found = imported(tiny_server, json.dumps(picked).encode(), "application/json")
    warnings = found["report"]["warnings"]
    assert [warning["code"] for warning in warnings] == ["model_missing"]
    assert "other.safetensors" in warnings[0]["message"]
    assert found["graph"]["nodes"][0].get("params") is None


@pytest.mark.parametrize(
    "reference",
    [
        "x",
        [],
        {"ref": ["asset"]},
        {"ref": "asset", "id": 3},
        {"ref": "path", "path": "/etc/passwd"},
        {"ref": "path", "path": "x" * 9000},
        {"ref": "take", "id": "sha256-" + "0" * 64},
    ],
)
def test_odd_references_are_not_here(tiny_server: LiveServer, reference: Any) -> None:
    node = {"id": "i", "type": "input/image", "params": {"asset": reference}}
    document = {
        "graph": {"schemaVersion": 1, "nodes": [node]},
        "provenance": {"vae": {"name": ["a"]}, "model": "x", "versions": []},
    }
    found = imported(tiny_server, json.dumps(document).encode(), "application/json")
    assert found["assets"][0]["available"] is False
    assert [w["code"] for w in found["report"]["warnings"]] == ["asset_missing"]
    failed = tiny_server.submit([node], "i", wait=20).json()
    assert failed["error"]["code"] == "invalid_asset"


def test_a_form_upload(tiny_server: LiveServer) -> None:
    take = run(tiny_server, one_click(seed=91))["takes"][0]
    data = file_of(tiny_server, take)
    whole = imported(tiny_server, data)
    files = {"note": ("a.txt", b"--x\r\n\r\n", "text/plain"), "file": ("a.png", data, "image/png")}
    for form in (files, {"file": ("b.json", json.dumps(GRAPH).encode(), "application/json")}):
        reply = tiny_server.http.post("/v1/import", files=form)
        assert reply.status_code == 200, reply.text
        assert reply.json()["target"] == "m"
    assert tiny_server.http.post("/v1/import", files=files).json() == whole


@pytest.mark.parametrize(
    ("body", "kind", "status", "words"),
    [
        (b"x", "text/plain", 415, "Content-Type"),
        (b"x", "", 415, "none"),
        (b"", "image/png", 422, "empty"),
        (b"x", "multipart/form-data", 422, "boundary"),
        (b"x", "multipart/form-data; boundary=ab", 422, "field named 'file'"),
        (b"--ab--\r\n", "multipart/form-data; boundary=ab", 422, "field named 'file'"),
        (b"--ab\r\nno end", "multipart/form-data; boundary=ab", 422, "cut off"),
        (
            b'--ab\r\ncontent-disposition: form-data; name="other"\r\n\r\nx\r\n--ab--\r\n',
            "multipart/form-data; boundary=ab",
            422,
            "field named 'file'",
        ),
        (
            b'--ab\r\ncontent-disposition: form-data; name="file"\r\n\r\n\r\n--ab--\r\n',
            "multipart/form-data; boundary=ab",
            422,
            "no recipe",
        ),
    ],
)
def test_bodies_that_are_not_taken(
    tiny_server: LiveServer, body: bytes, kind: str, status: int, words: str
) -> None:
    reply = send(tiny_server, body, kind)
    assert reply.status_code == status, reply.text
    assert words in reply.json()["error"]["message"]
