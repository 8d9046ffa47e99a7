"""Checkpoints, ControlNets and inpaint models over the wire."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from inline_core.settings import Settings
from tests import tiny
from tests.live import LiveServer, live_server
from tests.pictures import noise_picture
from tests.tiny_families import FamilyRun, sd15
from tests.unit.server.test_family_runs import (
    content,
    edge,
    masked,
    one_click,
    run,
    uploaded,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("wire")
    sd15.save_models(folder / "models")
    keys = sd15.checkpoint_keys(sd15.unet(in_channels=9))
    tiny.save(keys, folder / "models/checkpoints/a-inpaint.safetensors")
    wanted = Settings(
        data_dir=folder / "data",
        models_dir=folder / "models",
        demo_model=False,
        threads=1,
        walkers=1,
    )
    with live_server(wanted) as running:
        yield running


def node(name: str, kind: str, params: Any = None, **inputs: Any) -> dict[str, Any]:
    return {"id": name, "type": kind, "params": params or {}, "inputs": inputs}


def test_nodes_of_a_checkpoint_give_what_the_one_click_node_gives(server: LiveServer) -> None:
    picture = uploaded(server, "i", "image", noise_picture(1, (64, 64)))
    nodes = [
        picture,
        node("p", "input/text", {"text": "a (red:1.3) circle"}),
        node("n", "input/text", {"text": ""}),
        node("load", "load/checkpoint", {"file": "sd15.safetensors"}),
        node("net", "load/controlnet", {"file": "canny.safetensors"}),
    ]
    for name in "pn":
        wires = {"text_encoder": edge("load", "text_encoder"), "prompt": edge(name, "text")}
        nodes.append(node(f"e{name}", "encode/text", **wires))
        skip = {"conditioning": edge(f"e{name}", "conditioning")}
        nodes.append(node(f"s{name}", "conditioning/clip-skip", {"layer": 2}, **skip))
    ends = {"positive": edge("sp", "conditioning"), "negative": edge("sn", "conditioning")}
    wires = ends | {"controlnet": edge("net", "controlnet"), "image": edge("i", "image")}
    nodes.append(node("c", "conditioning/controlnet", {"strength": 0.8, "end": 0.9}, **wires))
    nodes.append(node("l", "latent/empty", {"width": 64, "height": 64}))
    ends = {"positive": edge("c", "positive"), "negative": edge("c", "negative")}
    wires = ends | {"model": edge("load", "model"), "latent": edge("l", "latent")}
    nodes.append(node("k", "sample", {"steps": 3, "cfg": 7.0, "seed": 7}, **wires))
    nodes.append(node("d", "vae/decode", vae=edge("load", "vae"), latent=edge("k", "latent")))
    params = {
        "width": 64,
        "height": 64,
        "steps": 3,
        "seed": 7,
        "model": "sd15.safetensors",
        "controlnet": "canny.safetensors",
        "control_strength": 0.8,
        "control_end": 0.9,
        "clip_skip": 2,
    }
    wires = {"prompt": edge("p", "text"), "control_image": edge("i", "image")}
    one = [picture, nodes[1], node("g", sd15.NODE, params, **wires)]
    takes = [run(server, graph)["takes"][0] for graph in ((nodes, "d"), (one, "g"))]
    first, second = (np.asarray(Image.open(io.BytesIO(content(server, take)))) for take in takes)
    assert first.std() > 1
    assert np.array_equal(first, second)
    assert takes[1]["provenance"]["model"]["name"] == "sd15.safetensors"


def test_inpaint_models_have_a_node_of_their_own(server: LiveServer) -> None:
    wanted = FamilyRun(
        f"{sd15.NODE}-inpaint",
        {"steps": 2},
        size=(96, 64),
        images={"image": (96, 64)},
        masks={"mask": (96, 64)},
    )
    nodes = [
        uploaded(server, "i", "image", noise_picture(1, (96, 64))),
        uploaded(server, "m", "mask", masked((96, 64))),
        node("p", "input/text", {"text": "a red circle"}),
        node(
            "g",
            wanted.node,
            {"steps": 2, "seed": 7},
            prompt=edge("p", "text"),
            image=edge("i", "image"),
            mask=edge("m", "mask"),
        ),
    ]
    take = run(server, (nodes, "g"))["takes"][0]
    assert (take["width"], take["height"]) == (96, 64)
    assert take["provenance"]["model"]["name"] == "a-inpaint.safetensors"
    # The plain node takes a plain model, whatever comes first in the alphabet.
    take = run(server, one_click(server, sd15.RUNS[0]))["takes"][0]
    assert take["provenance"]["model"]["name"] == "sd15.safetensors"


def test_the_descriptor_offers_checkpoints_and_plans_them(server: LiveServer) -> None:
    listed = server.http.get("/v1/models").json()["models"]
    found = next(model for model in listed if model["type"] == sd15.NODE)
    params = {param["key"]: param for param in found["params"]}
    names = [option["value"] for option in params["model"]["options"]]
    assert names == ["a-inpaint.safetensors", "sd15.safetensors"]
    assert found["estimate"]["fits"]


def test_a_picked_controlnet_needs_its_picture(server: LiveServer) -> None:
    params = {"width": 64, "height": 64, "steps": 2, "controlnet": "canny.safetensors"}
    nodes = [
        node("p", "input/text", {"text": "a"}),
        node("g", sd15.NODE, params, prompt=edge("p", "text")),
    ]
    found = server.submit(nodes, "g", wait=30).json()
    assert found["status"] == "error"
    assert "control_image" in found["error"]["message"]
