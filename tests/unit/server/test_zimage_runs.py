"""Z-Image over the wire: one click and primitives, pictures from pictures, batches, adapters."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from inline_core.media.png import read_provenance
from tests import tiny
from tests.live import LiveServer

PROMPT = {"id": "p", "type": "input/text", "params": {"text": "a red circle"}}
SIZE = {"width": 128, "height": 64}


def edge(node: str, output: str) -> dict[str, str]:
    return {"from": node, "output": output}


def one_click(
    inputs: dict[str, Any] | None = None, extra: list[dict[str, Any]] | None = None, **params: Any
) -> tuple[list[dict[str, Any]], str]:
    values = {"steps": 4, "seed": 7, **SIZE, **params}
    wires = {"prompt": edge("p", "text"), **(inputs or {})}
    node = {"id": "m", "type": "alibaba/z-image-turbo", "params": values, "inputs": wires}
    return [PROMPT, *(extra or []), node], "m"


def primitives(
    latent: dict[str, Any] | None = None, batch: int = 1, negative: str | None = None, **sample: Any
) -> tuple[list[dict[str, Any]], str]:
    nodes: list[dict[str, Any]] = [
        PROMPT,
        {"id": "model", "type": "load/diffusion-model"},
        {"id": "vae", "type": "load/vae"},
        {"id": "encoder", "type": "load/text-encoder"},
        {
            "id": "c",
            "type": "encode/text",
            "inputs": {
                "text_encoder": edge("encoder", "text_encoder"),
                "prompt": edge("p", "text"),
            },
        },
        latent or {"id": "l", "type": "latent/empty", "params": {**SIZE, "batch": batch}},
    ]
    wires = {
        "model": edge("model", "model"),
        "positive": edge("c", "conditioning"),
        "latent": edge("l", "latent"),
    }
    if negative is not None:
        nodes.append({"id": "n", "type": "input/text", "params": {"text": negative}})
        nodes.append(
            {
                "id": "nc",
                "type": "encode/text",
                "inputs": {
                    "text_encoder": edge("encoder", "text_encoder"),
                    "prompt": edge("n", "text"),
                },
            }
        )
        wires["negative"] = edge("nc", "conditioning")
    params = {"steps": 4, "cfg": 1.0, "seed": 7, **sample}
    nodes.append({"id": "s", "type": "sample", "params": params, "inputs": wires})
    nodes.append(
        {
            "id": "d",
            "type": "vae/decode",
            "inputs": {"vae": edge("vae", "vae"), "latent": edge("s", "latent")},
        }
    )
    return nodes, "d"


def run(server: LiveServer, graph: tuple[list[dict[str, Any]], str], **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = server.submit(*graph, wait=50, **more).json()
    assert found["status"] == "done", found["error"]
    return found


def pixels(server: LiveServer, take: dict[str, Any]) -> Any:
    data = server.http.get(f"/v1/takes/{take['id']}/bytes").content
    with Image.open(io.BytesIO(data)) as picture:
        return np.asarray(picture)


@pytest.mark.parametrize(
    ("guidance", "sampler"),
    [(0.0, "euler"), (2.5, "euler"), (0.0, "euler_a"), (0.0, "heun"), (0.0, "dpmpp_2m")],
)
def test_one_click_and_primitives_give_equal_pixels(
    tiny_server: LiveServer, guidance: float, sampler: str
) -> None:
    one = run(tiny_server, one_click(guidance=guidance, sampler=sampler, negative_prompt="blue"))
    two = run(tiny_server, primitives(cfg=1 + guidance, sampler=sampler, negative="blue"))
    first, second = pixels(tiny_server, one["takes"][0]), pixels(tiny_server, two["takes"][0])
    assert first.shape == (64, 128, 3)
    assert np.array_equal(first, second)


def test_image_to_image(tiny_server: LiveServer) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (128, 64), (200, 30, 30)).save(buffer, "PNG")
    asset = tiny_server.http.post("/v1/assets", content=buffer.getvalue()).json()["id"]
    source = {"id": "i", "type": "input/image", "params": {"asset": {"ref": "asset", "id": asset}}}
    wires = {"image": edge("i", "image")}
    results = {
        strength: run(tiny_server, one_click(wires, [source], strength=strength))
        for strength in (0.2, 0.8)
    }
    vae = {"id": "v2", "type": "load/vae"}
    latent = {
        "id": "l",
        "type": "vae/encode",
        "inputs": {"vae": edge("v2", "vae"), "image": edge("i", "image")},
    }
    nodes, target = primitives(latent, denoise=0.8)
    two = run(tiny_server, ([source, vae, *nodes], target))
    assert np.array_equal(
        pixels(tiny_server, results[0.8]["takes"][0]), pixels(tiny_server, two["takes"][0])
    )
    assert not np.array_equal(
        pixels(tiny_server, results[0.2]["takes"][0]), pixels(tiny_server, results[0.8]["takes"][0])
    )


def test_picture_i_of_a_batch_is_seed_plus_i(tiny_server: LiveServer) -> None:
    batch = run(tiny_server, primitives(batch=3))
    assert [take["params"]["seed"] for take in batch["takes"]] == [7, 8, 9]
    for index, take in enumerate(batch["takes"]):
        alone = run(tiny_server, primitives(seed=7 + index))
        difference = np.abs(
            pixels(tiny_server, take).astype(int)
            - pixels(tiny_server, alone["takes"][0]).astype(int)
        )
        assert difference.max() <= 1


def test_the_file_tells_how_to_make_it_again(tiny_server: LiveServer) -> None:
    first = run(tiny_server, one_click(seed=-1))
    take = first["takes"][0]
    data = tiny_server.http.get(f"/v1/takes/{take['id']}/bytes").content
    recipe = read_provenance(data)
    assert recipe is not None
    assert recipe["provenance"]["seed"] == first["seeds"]["m"]
    assert recipe["provenance"]["versions"]["torch"]
    body = {"graph": recipe["graph"], "target": recipe["target"], "force": True}
    again = tiny_server.http.post("/v1/runs?wait=50", json=body).json()
    assert again["nodes"]["m"]["state"] == "done"
    assert again["takes"][0]["hash"] == take["hash"]


def test_an_adapter_changes_the_picture(tiny_server: LiveServer, tiny_models: Path) -> None:
    folder = tiny_models / "loras"
    folder.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(1)
    save_file(
        {
            "diffusion_model.layers.0.attention.out.lora_A.weight": torch.randn(
                2, 64, generator=generator
            ),
            "diffusion_model.layers.0.attention.out.lora_B.weight": torch.randn(
                64, 2, generator=generator
            ),
        },
        str(folder / "my.v1.0.safetensors"),
    )
    tiny.settle(folder)
    tiny_server.services.catalog.refresh()
    lora = {"id": "lora", "type": "load/lora", "params": {"file": "my.v1.0.safetensors"}}
    plain = run(tiny_server, one_click())
    changed = run(tiny_server, one_click({"lora": edge("lora", "lora")}, [lora]))
    assert changed["takes"][0]["hash"] != plain["takes"][0]["hash"]
    assert changed["takes"][0]["params"]["loras"] == [
        {"file": "my.v1.0.safetensors", "strength": 1.0}
    ]


def test_real_previews_reach_the_socket(tiny_server: LiveServer) -> None:
    nodes, target = one_click(steps=60, seed=-1)
    run_id = tiny_server.submit(nodes, target).json()["runId"]
    with tiny_server.socket(run_id, "?previews=1") as socket:
        frames = list(socket)
    previews = [frame for frame in frames if isinstance(frame, bytes)]
    assert previews
    size = int.from_bytes(previews[0][:4], "big")
    assert json.loads(previews[0][4 : 4 + size])["nodeId"] == "m"
    with Image.open(io.BytesIO(previews[0][4 + size :])) as picture:
        assert picture.format == "JPEG"
    texts = [json.loads(frame) for frame in frames if isinstance(frame, str)]
    assert texts[-1]["type"] == "run_done"
    assert any(frame.get("etaMs") is not None for frame in texts)


def test_only_what_changed_runs_again(tiny_server: LiveServer) -> None:
    run(tiny_server, primitives(seed=101))
    again = run(tiny_server, primitives(seed=102))
    states = {node: entry["state"] for node, entry in again["nodes"].items()}
    assert states["c"] == "cached"
    assert states["s"] == states["d"] == "done"


@pytest.mark.parametrize(
    ("category", "name", "content", "words"),
    [
        (
            "vae",
            "pointer.safetensors",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:"
            + b"0" * 64
            + b"\nsize 12309866400\n",
            "Git LFS pointer",
        ),
        ("vae", "page.safetensors", b"<!doctype html><title>401</title>", "HTML"),
        ("diffusion_models", "empty.safetensors", b"", "empty"),
        ("text_encoders", "other.safetensors", b"GGUF\x03\x00\x00\x00", "GGUF"),
    ],
)
def test_files_that_are_not_what_they_seem(
    tiny_server: LiveServer, tiny_models: Path, category: str, name: str, content: bytes, words: str
) -> None:
    file = tiny_models / category / name
    file.write_bytes(content)
    tiny.settle(file.parent)
    tiny_server.services.catalog.refresh()
    kind = {
        "vae": "load/vae",
        "diffusion_models": "load/diffusion-model",
        "text_encoders": "load/text-encoder",
    }[category]
    run_ = tiny_server.submit(
        [{"id": "x", "type": kind, "params": {"file": name}}], "x", wait=20
    ).json()
    assert run_["status"] == "error"
    assert run_["error"]["nodeId"] == "x"
    assert run_["error"]["code"] == "model_invalid"
    assert words.lower() in run_["error"]["message"].lower()
    assert name in run_["error"]["message"]
    listed = tiny_server.http.get("/v1/model-files").json()["files"]
    assert next(entry for entry in listed if entry["name"] == name)["status"] != "ready"
    options = tiny_server.http.get(f"/v1/models/{kind}").json()["params"][0].get("options", [])
    assert name not in [option["value"] for option in options]
    file.unlink()
    tiny_server.services.catalog.refresh()


def test_a_new_file_moves_the_registry_version(tiny_server: LiveServer, tiny_models: Path) -> None:
    before = tiny_server.http.get("/v1/models")
    copy = tiny_models / "vae" / "second.safetensors"
    copy.write_bytes((tiny_models / "vae" / "ae.safetensors").read_bytes())
    tiny.settle(copy.parent)
    tiny_server.services.catalog.refresh()
    after = tiny_server.http.get("/v1/models", headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.json()["registryVersion"] != before.json()["registryVersion"]
    copy.unlink()
    tiny_server.services.catalog.refresh()


def test_a_file_of_another_role_is_refused_at_the_loader(
    tiny_server: LiveServer, tiny_models: Path
) -> None:
    target = tiny_models / "text_encoders" / "really-a-vae.safetensors"
    target.write_bytes((tiny_models / "vae" / "ae.safetensors").read_bytes())
    tiny.settle(target.parent)
    tiny_server.services.catalog.refresh()
    node = {"id": "t", "type": "load/text-encoder", "params": {"file": target.name}}
    run_ = tiny_server.submit([node], "t", wait=20).json()
    assert run_["error"]["code"] == "model_invalid"
    assert "VAE" in run_["error"]["message"]
    assert run_["error"]["nodeId"] == "t"
    target.unlink()
    tiny_server.services.catalog.refresh()
