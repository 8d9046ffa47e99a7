"""Upscaling with a model, over the real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from inline_core.devices.placement import Placement
from inline_core.families.upscalers.runtime import load_upscaler
from inline_core.loading.files import open_weights
from inline_core.loading.identify import identify
from inline_core.loading.stream import LoadPlan
from inline_core.settings import Settings
from tests.live import LiveServer, live_server
from tests.tiny import settle
from tests.unit.families.upscalers.test_upscalers import compact_state, rrdb_state
from tests.unit.nodes.pictures import Pixels, cutout, furthest, scene
from tests.unit.nodes.test_image_runs import edge, picture, source


@pytest.fixture
def upscaling(tmp_path: Path) -> Iterator[LiveServer]:
    folder = tmp_path / "models" / "upscale_models"
    folder.mkdir(parents=True)
    save_file(rrdb_state(1, blocks=1), folder / "x2.safetensors")
    save_file(compact_state(4), folder / "compact.safetensors")
    torch.save({"params": rrdb_state(1)}, folder / "pickled.pth")
    settle(folder)
    wanted = Settings(
        data_dir=tmp_path / "data", models_dir=tmp_path / "models", demo_model=False, threads=1
    )
    with live_server(wanted) as running:
        yield running


def alone(server: LiveServer, name: str, pixels: Pixels) -> Pixels:
    """What the upscaler makes of pixels without a server, in one piece."""
    file = server.settings.models_dir / "upscale_models" / name
    files = open_weights(file, name)
    placement = Placement("cpu", "float32")
    plan = LoadPlan(files, identify(files.headers), placement, name, lambda: None)
    with torch.inference_mode():
        return load_upscaler(plan).upscale(
            pixels, tile=4096, overlap=0, report=lambda done, count: None
        )


def test_an_upscaler_of_the_models_folder_enlarges(upscaling: LiveServer) -> None:
    nodes = [
        source(upscaling, "i", scene().pixels),
        {"id": "u", "type": "image/upscale-model", "inputs": {"image": edge("i")}, "params": {"tile": 64}},
    ]  # fmt: skip
    run = upscaling.submit(nodes, "u", wait=50).json()
    assert run["status"] == "done", run
    take = run["takes"][0]
    assert (take["width"], take["height"]) == (180, 120)
    assert take["params"]["upscaler"] == "x2.safetensors"
    found = picture(upscaling, take)
    assert furthest(found, alone(upscaling, "x2.safetensors", scene().pixels)) <= 1
    nodes[1]["params"] = {"model": "compact.safetensors"}
    nodes[0] = source(upscaling, "i", cutout().pixels)
    run = upscaling.submit(nodes, "u", wait=50).json()
    assert run["status"] == "done", run
    found = picture(upscaling, run["takes"][0])
    assert found.shape == (192, 256, 4)
    wanted = alone(upscaling, "compact.safetensors", np.ascontiguousarray(cutout().pixels[..., :3]))
    assert furthest(found[..., :3], wanted) <= 1


def test_a_pickle_is_refused(upscaling: LiveServer) -> None:
    nodes = [
        source(upscaling, "i", scene().pixels),
        {"id": "u", "type": "image/upscale-model", "inputs": {"image": edge("i")}, "params": {"model": "pickled.pth"}},
    ]  # fmt: skip
    reply = upscaling.submit(nodes, "u", wait=50).json()
    assert "error" in reply, reply
    assert "pickled.pth" in reply["error"]["message"]


def test_an_estimate_knows_the_size(upscaling: LiveServer) -> None:
    nodes = [
        source(upscaling, "i", scene().pixels),
        {"id": "u", "type": "image/upscale-model", "inputs": {"image": edge("i")}},
        {"id": "c", "type": "image/crop", "inputs": {"image": edge("u")}, "params": {"x": 170, "width": 20, "height": 20}},
    ]  # fmt: skip
    body = {"graph": {"schemaVersion": 1, "nodes": nodes}, "target": "c"}
    reply = upscaling.http.post("/v1/estimate", json=body)
    assert "reaches outside of the 180x120" in reply.text, reply.text
