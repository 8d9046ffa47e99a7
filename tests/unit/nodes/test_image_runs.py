"""Picture nodes in graphs, over the real server."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from inline_core.nodes.image_compose import composite
from inline_core.nodes.image_control import canny
from inline_core.nodes.image_size import pad, resize
from inline_core.nodes.mask import to_image
from inline_core.nodes.mask_shape import grow
from tests.live import LiveServer
from tests.unit.nodes.pictures import Pixels, context, cutout, one, scene


def source(server: LiveServer, node_id: str, pixels: Pixels) -> dict[str, Any]:
    buffer = io.BytesIO()
    PillowImage.fromarray(pixels).save(buffer, "PNG")
    asset = server.http.post("/v1/assets", content=buffer.getvalue()).json()["id"]
    return {
        "id": node_id,
        "type": "input/image",
        "params": {"asset": {"ref": "asset", "id": asset}},
    }


def edge(node_id: str, output: str = "image") -> dict[str, str]:
    return {"from": node_id, "output": output}


def picture(server: LiveServer, take: dict[str, Any]) -> Pixels:
    data = server.http.get(f"/v1/{take['uri']}").content
    return np.asarray(PillowImage.open(io.BytesIO(data)))


def outpainting(server: LiveServer) -> list[dict[str, Any]]:
    """A picture resized, with another on it, padded; and its mask, grown, as a picture."""
    return [
        source(server, "i", scene().pixels),
        source(server, "o", cutout().pixels),
        {"id": "r", "type": "image/resize", "inputs": {"image": edge("i")}, "params": {"by": "longer", "side": 60}},
        {"id": "c", "type": "image/composite", "inputs": {"destination": edge("r"), "source": edge("o")}, "params": {"x": 5}},
        {"id": "p", "type": "image/pad", "inputs": {"image": edge("c")}, "params": {"left": 16, "feathering": 4}},
        {"id": "g", "type": "mask/grow", "inputs": {"mask": edge("p", "mask")}, "params": {"expand": 3}},
        {"id": "m", "type": "mask/to-image", "inputs": {"mask": edge("g", "mask")}},
        {"id": "j", "type": "image/join", "inputs": {"images": [edge("p"), edge("m"), edge("k")]}},
        {"id": "k", "type": "image/canny", "inputs": {"image": edge("p")}, "params": {"low": 0.1, "high": 0.2}},
    ]  # fmt: skip


def test_a_graph_of_tools_gives_what_the_functions_give(server: LiveServer) -> None:
    run = server.submit(outpainting(server), "j", wait=30).json()
    assert run["status"] == "done", run
    takes = [take for take in run["takes"] if take["nodeId"] == "j"]
    small = resize(context(), scene(), by="longer", side=60)
    padded, mask = pad(context(), composite(context(), small, cutout(), x=5), left=16, feathering=4)
    grown = to_image(grow(mask, expand=3))
    edges = canny(context(), padded, low=0.1, high=0.2)
    for take, wanted in zip(takes, (padded, grown, edges), strict=True):
        assert np.array_equal(picture(server, take), one(wanted).pixels)
        assert (take["width"], take["height"]) == (76, 40)


def test_the_mask_beside_a_stored_picture_is_made_again(server: LiveServer) -> None:
    nodes = outpainting(server)
    first = server.submit(nodes, "p", wait=30).json()
    assert first["status"] == "done", first
    again = server.submit(nodes, "p", wait=30).json()
    assert again["nodes"]["p"]["state"] == "cached"
    # The take holds the picture only, so whoever reads the mask needs the node to run.
    other = server.submit(nodes, "m", wait=30).json()
    assert other["status"] == "done", other
    assert other["nodes"]["p"]["state"] == "done"
    assert other["nodes"]["c"]["state"] == "cached"


def test_an_impossible_request_names_node_param_and_remedy(server: LiveServer) -> None:
    nodes = [
        source(server, "i", scene().pixels),
        {"id": "c", "type": "image/crop", "inputs": {"image": edge("i")}, "params": {"x": 80, "width": 20}},
    ]  # fmt: skip
    run = server.submit(nodes, "c", wait=30).json()
    assert run["status"] == "error"
    error = run["error"]
    assert (error["code"], error["nodeId"]) == ("invalid_param", "c")
    assert "20x512 from (80, 0) reaches outside of the 90x60" in error["message"]
    refused = server.submit([nodes[0], {**nodes[1], "params": {"width": 0}}], "c")
    assert refused.status_code == 422
    assert refused.json()["error"]["param"] == "width"
