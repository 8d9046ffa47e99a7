"""Workflows of ComfyUI over `/v1` and from the command line: graph, report, run, and back."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from inline_core.settings import Settings
from tests import tiny
from tests.live import LiveServer, live_server

PROMPT: dict[str, Any] = {
    "3": {
        "class_type": "KSampler",
        "inputs": {
            "model": ["11", 0], "positive": ["6", 0], "negative": ["7", 0],
            "latent_image": ["5", 0], "seed": 7, "steps": 2, "cfg": 1.0,
            "sampler_name": "euler_ancestral", "scheduler": "simple", "denoise": 1.0,
        },
    },
    "4": {"class_type": "UNETLoader",
          "inputs": {"unet_name": "z.safetensors", "weight_dtype": "default"}},
    "11": {"class_type": "ModelSamplingAuraFlow", "inputs": {"model": ["4", 0], "shift": 3.0}},
    "5": {"class_type": "EmptySD3LatentImage",
          "inputs": {"width": ["12", 0], "height": 64, "batch_size": 1}},
    "12": {"class_type": "PrimitiveInt", "inputs": {"value": 96}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a red circle", "clip": ["8", 0]}},
    "7": {"class_type": "ConditioningZeroOut", "inputs": {"conditioning": ["6", 0]}},
    "8": {"class_type": "CLIPLoader",
          "inputs": {"clip_name": "qwen", "type": "lumina2", "device": "default"}},
    "9": {"class_type": "VAELoader", "inputs": {"vae_name": "ae.safetensors"}},
    "10": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["9", 0]}},
    "13": {"class_type": "SaveImage",
           "inputs": {"images": ["10", 0], "filename_prefix": "circle"},
           "_meta": {"title": "Keep it"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def painter(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("import")
    wanted = Settings(
        data_dir=folder / "data", models_dir=tiny.shared_models(), demo_model=False, threads=1
    )
    with live_server(wanted) as running:
        yield running


def imported(server: LiveServer, data: bytes, kind: str = "application/json", **more: Any) -> Any:
    headers = {"content-type": kind}
    return server.http.post("/v1/import/comfyui", content=data, headers=headers, params=more)


def picture_with(**texts: str) -> bytes:
    info, buffer = PngInfo(), io.BytesIO()
    for key, text in texts.items():
        info.add_text(key, text)
    Image.new("RGB", (8, 8)).save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


def test_a_prompt_becomes_a_graph_that_runs_and_goes_back(painter: LiveServer) -> None:
    found = imported(painter, json.dumps(PROMPT).encode()).json()
    report = found["report"]
    assert (report["complete"], report["problems"], found["targets"]) == (True, [], ["13"])
    states = {node["nodeId"]: node["state"] for node in report["nodes"]}
    assert states.pop("12") == "folded"
    assert set(states.values()) == {"converted"}
    assert all(file["present"] for file in report["files"])
    body = {"graph": found["graph"], "targets": found["targets"]}
    answer = painter.http.post("/v1/runs", json=body, params={"wait": 50}).json()
    assert answer["status"] == "done", answer
    (take,) = answer["takes"]
    assert (take["nodeId"], take["width"], take["height"]) == ("13", 96, 64)
    back = painter.http.post("/v1/export/comfyui", json={"graph": found["graph"]}).json()
    assert back == {"prompt": found["prompt"], "leftOut": []}
    assert found["prompt"] == PROMPT


def test_changed_params_are_written_back(painter: LiveServer) -> None:
    graph = imported(painter, json.dumps(PROMPT).encode()).json()["graph"]
    nodes = {node["id"]: node for node in graph["nodes"]}
    nodes["3"]["params"] |= {"seed": 9, "sampler": "heun"}
    nodes["5"]["params"]["width"] = 128
    nodes["6/text"]["params"]["text"] = "a blue square"
    graph["nodes"].append({"id": "mine", "type": "image/solid"})
    back = painter.http.post("/v1/export/comfyui", json={"graph": graph}).json()
    assert back["prompt"]["3"]["inputs"]["seed"] == 9
    assert back["prompt"]["12"]["inputs"]["value"] == 128
    assert back["prompt"]["6"]["inputs"]["text"] == "a blue square"
    assert back["prompt"]["3"]["inputs"]["sampler_name"] == "euler_ancestral"
    assert len(back["leftOut"]) == 2
    assert "sampler of node 3 is now 'heun'" in " ".join(back["leftOut"])
    assert "node mine (image/solid) is none of the workflow's" in " ".join(back["leftOut"])
    own = {"schemaVersion": 1, "nodes": [{"id": "a", "type": "image/solid"}]}
    refused = painter.http.post("/v1/export/comfyui", json={"graph": own})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_request")
    assert "was not imported from ComfyUI" in refused.text


def test_what_is_in_the_way_is_told_with_what_is_missing(painter: LiveServer) -> None:
    prompt = json.loads(json.dumps(PROMPT))
    prompt["4"]["inputs"]["unet_name"] = "sub\\other.safetensors"
    prompt["20"] = {"class_type": "FaceFixer", "inputs": {"image": ["10", 0]}}
    prompt["21"] = {"class_type": "SaveImage", "inputs": {"images": ["20", 0]}}
    found = imported(painter, json.dumps(prompt).encode()).json()
    report = found["report"]
    assert (report["complete"], found["targets"]) == (False, ["13"])
    assert "in the way: 'FaceFixer'" in report["summary"]
    blocked = {node["nodeId"]: node for node in report["nodes"] if node["state"] != "converted"}
    assert blocked["20"]["state"] == "unsupported"
    assert blocked["21"]["state"] == "broken"
    missing = [file for file in report["files"] if not file["present"]]
    assert [(file["category"], file["name"]) for file in missing] == [
        ("diffusion_models", "sub/other.safetensors")
    ]
    assert report["problems"][0]["code"] == "param_not_an_option"


def test_workflows_are_found_in_pictures_and_forms(painter: LiveServer) -> None:
    data = picture_with(prompt=json.dumps(PROMPT))
    found = imported(painter, data, "image/png").json()
    assert (found["report"]["place"], found["targets"]) == ("PNG prompt", ["13"])
    form = painter.http.post(
        "/v1/import/comfyui", files={"file": ("flow.png", data, "image/png")}
    ).json()
    assert form["graph"] == found["graph"]


@pytest.mark.parametrize(
    ("data", "status", "said"),
    [
        (b"", 422, "The body is empty"),
        (b'{"nodes": [', 422, "ends too early"),
        (b'{"a": 1}', 422, "no ComfyUI workflow"),
        (picture_with(), 422, "no ComfyUI workflow"),
        (b"\x00\x01\x02", 422, ""),
    ],
    ids=["empty", "cut off", "other JSON", "plain picture", "noise"],
)
def test_what_holds_no_workflow_is_refused(
    painter: LiveServer, data: bytes, status: int, said: str
) -> None:
    reply = imported(painter, data, "application/octet-stream")
    assert reply.status_code == status, reply.text
    assert said in reply.json()["error"]["message"]


def test_a_workflow_sent_to_runs_is_told_where_to_go(painter: LiveServer) -> None:
    error = painter.http.post("/v1/runs", json={"graph": PROMPT, "target": "13"}).json()["error"]
    assert "/v1/import/comfyui" in error["message"]


def test_the_seed_chooses_among_the_options_of_a_prompt(painter: LiveServer) -> None:
    node = {"id": 1, "type": "CLIPTextEncode", "mode": 0, "inputs": [], "outputs": [
        {"name": "CONDITIONING", "type": "CONDITIONING", "links": None}],
        "widgets_values": ["a {red|blue|green|black|white} circle"]}  # fmt: skip
    workflow = json.dumps({"nodes": [node], "links": [], "version": 0.4}).encode()
    texts = [
        imported(painter, workflow, seed=seed).json()["prompt"]["1"]["inputs"]["text"]
        for seed in (0, 0, 1, 2, 3, 4)
    ]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def command(*arguments: str) -> tuple[int, str]:
    """`inline-core` in a process of its own, as it settles the logs of its process."""
    code = "import sys; from inline_core.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_the_command_imports_and_runs(tmp_path: Path) -> None:
    file, graph = tmp_path / "flow.json", tmp_path / "graph.json"
    file.write_text(json.dumps(PROMPT))
    flags = ["--data-dir", str(tmp_path / "data"), "--models-dir", str(tiny.shared_models())]
    made = ["--graph", str(graph), "--run", "-o", str(tmp_path / "out")]
    code, told = command("import", str(file), *made, *flags)
    assert code == 0, told
    assert "converted" in told
    assert json.loads(graph.read_text())["targets"] == ["13"]
    (picture,) = (tmp_path / "out").glob("*.png")
    with Image.open(picture) as opened:
        assert opened.size == (96, 64)
    (file := tmp_path / "odd.json").write_text('{"nodes": [')
    code, told = command("import", str(file), *flags)
    assert (code, "ends too early" in told) == (2, True)
    code, told = command("import", str(tmp_path / "none.json"), *flags)
    assert (code, "there is no file" in told) == (2, True)


def test_the_command_uses_a_server_that_runs(painter: LiveServer, tmp_path: Path) -> None:
    file = tmp_path / "flow.json"
    file.write_text(json.dumps({**PROMPT, "14": {"class_type": "Odd", "inputs": {}}}))
    (painter.settings.data_dir / "server.json").write_text(json.dumps({"url": painter.url}))
    flags = ["--data-dir", str(painter.settings.data_dir)]
    code, told = command("import", str(file), "--run", "-o", str(tmp_path), *flags)
    assert code == 0, told
    assert "unsupported: Odd" in told
    assert list(tmp_path.glob("*.png"))
