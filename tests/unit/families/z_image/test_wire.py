"""ControlNets and the base model of Z-Image over the wire: one click and primitives."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from inline_core.settings import Settings
from tests import tiny
from tests.live import LiveServer, live_server
from tests.pictures import noise_picture
from tests.tiny_families import sd15
from tests.unit.families.z_image.test_control import controlnet
from tests.unit.server.test_family_runs import content, edge, run, uploaded

TURBO = "alibaba/z-image-turbo"
USUAL = {"width": 128, "height": 64, "steps": 3, "seed": 7}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("wire")
    models = tiny.save_models(folder / "models")
    tiny.save(controlnet("2.1").state_dict(), models / "model_patches/union.safetensors")
    tiny.save(sd15.controlnet().state_dict(), models / "controlnet/canny.safetensors")
    tiny.settle(models)
    wanted = Settings(
        data_dir=folder / "data", models_dir=models, demo_model=False, threads=1, walkers=1
    )
    with live_server(wanted) as running:
        yield running


def node(name: str, kind: str, params: Any = None, **inputs: Any) -> dict[str, Any]:
    return {"id": name, "type": kind, "params": params or {}, "inputs": inputs}


def one_click(
    kind: str, *more: dict[str, Any], inputs: Any = None, **params: Any
) -> tuple[list[dict[str, Any]], str]:
    prompt = node("p", "input/text", {"text": "a red circle"})
    wires = {"prompt": edge("p", "text"), **(inputs or {})}
    return [*more, prompt, node("g", kind, {**USUAL, **params}, **wires)], "g"


def primitives(*more: dict[str, Any], controlled: bool, cfg: float) -> Any:
    nodes = [
        *more,
        node("p", "input/text", {"text": "a red circle"}),
        node("n", "input/text", {"text": ""}),
        node("m", "load/diffusion-model"),
        node("v", "load/vae", {"file": "ae.safetensors"}),
        node("e", "load/text-encoder", {"file": "qwen"}),
        node("l", "latent/empty", {"width": 128, "height": 64}),
    ]
    for name in "pn":
        wires = {"text_encoder": edge("e", "text_encoder"), "prompt": edge(name, "text")}
        nodes.append(node(f"e{name}", "encode/text", **wires))
    ends = {"positive": edge("ep", "conditioning"), "negative": edge("en", "conditioning")}
    if controlled:
        nodes.append(node("net", "load/controlnet", {"file": "union.safetensors"}))
        wires = ends | {"controlnet": edge("net", "controlnet"), "image": edge("i", "image")}
        # Without a VAE wired: the one that belongs to the model is taken.
        nodes.append(node("c", "conditioning/controlnet", {"strength": 0.8, "end": 0.9}, **wires))
        ends = {"positive": edge("c", "positive"), "negative": edge("c", "negative")}
    wires = ends | {"model": edge("m", "model"), "latent": edge("l", "latent")}
    nodes.append(node("k", "sample", {"steps": 3, "cfg": cfg, "seed": 7}, **wires))
    nodes.append(node("d", "vae/decode", vae=edge("v", "vae"), latent=edge("k", "latent")))
    return nodes, "d"


def test_a_controlled_picture_by_one_click_and_by_primitives(server: LiveServer) -> None:
    picture = uploaded(server, "i", "image", noise_picture(1, (90, 70)))
    wired = {"control_image": edge("i", "image")}
    params = {"controlnet_conditioning_scale": 0.8, "control_end": 0.9, "guidance": 1.0}
    named = one_click(TURBO, picture, inputs=wired, controlnet="union.safetensors", **params)
    found = one_click(TURBO, picture, inputs=wired, **params)
    graphs = (named, found, primitives(picture, controlled=True, cfg=2.0), one_click(TURBO))
    made = [pixels(server, run(server, graph)) for graph in graphs]
    assert made[0] == made[1] == made[2]
    assert made[0] != made[3]


def test_the_base_model_is_guided_and_has_its_own_defaults(server: LiveServer) -> None:
    one = run(server, one_click("alibaba/z-image"))
    two = run(server, primitives(controlled=False, cfg=5.0))
    assert pixels(server, one) == pixels(server, two)
    assert one["takes"][0]["provenance"]["variant"] == "base"
    params = server.http.get("/v1/models/alibaba/z-image").json()["params"]
    usual = {param["key"]: param["default"] for param in params}
    assert (usual["steps"], usual["guidance"]) == (50, 4.0)


@pytest.mark.parametrize(
    ("params", "wired", "words"),
    [
        ({"controlnet": "union.safetensors"}, False, "needs a picture to look at"),
        ({"controlnet": "canny.safetensors"}, True, "canny.safetensors is an SD1.5 ControlNet"),
    ],
)
def test_what_cannot_be_is_refused(
    server: LiveServer, params: dict[str, Any], wired: bool, words: str
) -> None:
    more = [uploaded(server, "i", "image", noise_picture(1, (64, 64)))] if wired else []
    inputs = {"control_image": edge("i", "image")} if wired else None
    found = server.submit(*one_click(TURBO, *more, inputs=inputs, **params), wait=30).json()
    assert found["status"] == "error"
    assert words in found["error"]["message"]


def pixels(server: LiveServer, made: dict[str, Any]) -> bytes:
    with Image.open(io.BytesIO(content(server, made["takes"][0]))) as picture:
        return picture.tobytes()
