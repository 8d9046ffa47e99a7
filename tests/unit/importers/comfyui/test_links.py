"""Modes, reroutes, primitives, Set and Get nodes, and links that lead nowhere."""

from __future__ import annotations

import time
from typing import Any

import pytest

from inline_core.importers.comfyui.document import UiNode, read_node
from inline_core.importers.comfyui.kinds import Bypass
from inline_core.importers.comfyui.report import Reason, Severity
from tests.unit.importers.comfyui.workflows import bare, flat, inputs, node, places, workflow

LOAD = node(1, "LoadImage", ["x.png", "image"], outputs=["IMAGE", "MASK"])


def save(node_id: int, link: int) -> dict[str, Any]:
    return node(node_id, "SaveImage", ["out"], inputs=[("images", "IMAGE", link)])


def test_a_muted_node_takes_its_links_along() -> None:
    nodes = [LOAD | {"mode": 2}, save(2, 1)]
    result = flat(workflow(nodes, [[1, 1, 0, 2, 0, "IMAGE"]]))
    assert bare(result) == {"2": {"class_type": "SaveImage", "inputs": {"filename_prefix": "out"}}}
    assert places(result, Reason.MUTED) == ["1", "2"]
    lost = next(line for line in result.report if line.node_id == "2")
    assert (lost.severity, lost.input) == (Severity.WARNING, "images")


def test_modes_that_only_the_library_knows_run() -> None:
    assert set(flat(workflow([LOAD | {"mode": 1}, save(2, 1) | {"mode": 3}], [])).prompt) == {
        "1",
        "2",
    }


def test_a_chain_of_bypassed_nodes() -> None:
    def blur(node_id: int, link: int) -> dict[str, Any]:
        slot = [("image", "image", link)]
        return node(node_id, "ImageBlur", [1, 1.0], inputs=slot, outputs=["Image"], mode=4)

    nodes = [LOAD, blur(2, 1), blur(3, 2), save(4, 3)]
    links = [[1, 1, 0, 2, 0, "IMAGE"], [2, 2, 0, 3, 0, "IMAGE"], [3, 3, 0, 4, 0, "IMAGE"]]
    result = flat(workflow(nodes, links))
    assert inputs(result, "4")["images"] == ["1", 0]
    assert places(result, Reason.BYPASSED) == ["2", "3"]


def test_bypass_by_type_where_the_slot_has_another() -> None:
    # Output 0 is a LATENT, input 0 a VAE: the first input of the wanted type is taken.
    slots = [("vae", "VAE", 1), ("extra", "LATENT,IMAGE", 2), ("samples", "LATENT", 3)]
    nodes = [
        node(1, "VAELoader", ["v"], outputs=["VAE"]),
        node(2, "EmptyLatentImage", [8, 8, 1], outputs=["LATENT"]),
        node(3, "EmptyLatentImage", [16, 16, 1], outputs=["LATENT"]),
        node(4, "Custom", inputs=slots, outputs=["LATENT"], mode=4),
        node(5, "VAEDecode", inputs=[("samples", "LATENT", 4), ("vae", "VAE", None)]),
        node(6, "PreviewAny", inputs=[("source", "*", 5)]),
    ]
    links = [
        [1, 1, 0, 4, 0, "VAE"],
        [2, 2, 0, 4, 1, "LATENT"],
        [3, 3, 0, 4, 2, "LATENT"],
        [4, 4, 0, 5, 0, "LATENT"],
        [5, 4, 0, 6, 0, "*"],
    ]
    result = flat(workflow(nodes, links))
    assert inputs(result, "5")["samples"] == ["3", 0]
    # Whoever takes anything gets the input of the same number.
    assert inputs(result, "6")["source"] == ["1", 0]


@pytest.mark.parametrize(
    ("wanted", "number"),
    [("MASK", 2), ("mask,LATENT", 2), ("CLIP", 3), ("IMAGE,*", 1), ("*", 1), ("VAE", 1)],
)
def test_which_input_of_a_bypassed_node_stands_in(wanted: str, number: int) -> None:
    slots = [(str(n), kind, n) for n, kind in enumerate(["IMAGE", "VAE", "MASK,LATENT", "*"])]
    bypassed = Bypass(read_node(node(1, "X", inputs=slots, outputs=["IMAGE", "VAE"]), "1"))  # type: ignore[arg-type]
    found = bypassed.input(1, wanted)
    assert found is not None
    assert found.name == str(number)
    assert Bypass(UiNode("1", "X")).input(0, wanted) is None


def test_a_primitive_goes_into_every_widget_through_a_reroute() -> None:
    slot = [("width", "INT", 2, "width"), ("height", "INT", 3, "height")]
    nodes = [
        node(1, "PrimitiveNode", [768, "randomize"], outputs=["INT"]),
        node(2, "Reroute", inputs=[("", "*", 1)], outputs=["INT"]),
        node(3, "EmptyLatentImage", [512, 512, 1], inputs=slot, outputs=["LATENT"]),
    ]
    links = [[1, 1, 0, 2, 0, "*"], [2, 2, 0, 3, 0, "INT"], [3, 1, 0, 3, 1, "INT"]]
    result = flat(workflow(nodes, links))
    assert inputs(result, "3") == {"width": 768, "height": 768, "batch_size": 1}
    assert places(result, Reason.PRIMITIVE) == ["1"]
    assert places(result, Reason.REROUTE) == ["2"]


def test_a_primitive_int_is_a_real_node() -> None:
    nodes = [
        node(1, "PrimitiveInt", [768, "fixed"], outputs=["INT"]),
        node(2, "EmptyLatentImage", [512, 512, 1], inputs=[("width", "INT", 1, "width")]),
    ]
    result = flat(workflow(nodes, [[1, 1, 0, 2, 0, "INT"]]))
    assert inputs(result, "1") == {"value": 768}
    assert inputs(result, "2")["width"] == ["1", 0]


def test_a_get_without_a_set_and_a_get_that_reads_itself() -> None:
    nodes = [
        node(1, "GetNode", ["nobody"], outputs=["IMAGE"]),
        save(2, 1),
        node(3, "GetNode", ["ring"], outputs=["IMAGE"]),
        node(4, "SetNode", ["ring"], inputs=[("IMAGE", "IMAGE", 2)], outputs=["*"]),
        save(5, 3),
    ]
    links = [[1, 1, 0, 2, 0, "IMAGE"], [2, 3, 0, 4, 0, "IMAGE"], [3, 3, 0, 5, 0, "IMAGE"]]
    result = flat(workflow(nodes, links))
    assert set(result.prompt) == {"2", "5"}
    assert places(result, Reason.MISSING_LINK) == ["2"]
    assert places(result, Reason.LINK_CYCLE) == ["5"]


def test_a_muted_set_node_gives_nothing() -> None:
    nodes = [
        LOAD,
        node(2, "SetNode", ["pic"], inputs=[("IMAGE", "IMAGE", 1)], mode=2),
        node(3, "GetNode", ["pic"], outputs=["IMAGE"]),
        save(4, 2),
    ]
    result = flat(workflow(nodes, [[1, 1, 0, 2, 0, "IMAGE"], [2, 3, 0, 4, 0, "IMAGE"]]))
    assert inputs(result, "4") == {"filename_prefix": "out"}
    assert places(result, Reason.MUTED) == ["2", "4"]


def test_a_ring_of_nodes_that_run() -> None:
    def blur(node_id: int, link: int) -> dict[str, Any]:
        return node(node_id, "ImageInvert", inputs=[("image", "IMAGE", link)], outputs=["IMAGE"])

    links = [[1, 1, 0, 2, 0, "IMAGE"], [2, 2, 0, 1, 0, "IMAGE"], [3, 2, 0, 3, 0, "IMAGE"]]
    result = flat(workflow([blur(1, 2), blur(2, 1), blur(3, 3)], links))
    line = next(line for line in result.report if line.reason is Reason.GRAPH_CYCLE)
    assert line.severity is Severity.ERROR
    assert "nodes 1, 2 feed each other" in line.message


@pytest.mark.parametrize("links", [[], [[1, 99, 0, 2, 0, "IMAGE"]]])
def test_a_link_or_its_node_that_is_not_there(links: list[list[Any]]) -> None:
    result = flat(workflow([LOAD, save(2, 1)], links))
    assert inputs(result, "2") == {"filename_prefix": "out"}
    assert places(result, Reason.MISSING_LINK) == ["2"]


def test_malformed_parts_are_left_out_and_named() -> None:
    nodes: Any = [
        LOAD,
        LOAD,
        {"id": 5},
        "node",
        node(2, "SaveImage", "text", inputs=[("images", "", 1)]),
    ]
    links: Any = [[1, 1, 0, 2, 0, "IMAGE"], [1, 2], None, "x"]
    result = flat(workflow(nodes, links))
    assert inputs(result, "2") == {"filename_prefix": "ComfyUI", "images": ["1", 0]}
    assert places(result, Reason.DUPLICATE_ID) == ["1"]
    assert len(places(result, Reason.MALFORMED)) == 4


def test_notes_are_kept_beside_the_graph_with_the_models() -> None:
    models = [{"name": "a.safetensors", "url": "http://x/a", "directory": "vae"}, "x"]
    nodes = [
        node(1, "MarkdownNote", ["# Read me"], title="Hello"),
        node(2, "VAELoader", ["a.safetensors"], properties={"models": models}),
    ]
    result = flat(workflow(nodes, []))
    assert set(result.prompt) == {"2"}
    assert [(n.node_id, n.title, n.text) for n in result.notes] == [("1", "Hello", "# Read me")]
    assert [(m.node_id, m.name, m.url, m.directory) for m in result.models] == [
        ("2", "a.safetensors", "http://x/a", "vae")
    ]


def test_links_of_use_everywhere() -> None:
    nodes = [
        LOAD,
        node(2, "Anything Everywhere", inputs=[("anything", "*", 1)]),
        node(3, "SaveImage", ["out"], inputs=[("images", "IMAGE", None)]),
    ]
    ends = {"upstream": "1", "upstream_slot": 0, "downstream": 3, "downstream_slot": 0}
    extra = {"ue_links": [ends, {"downstream": 3}, None]}
    result = flat(workflow(nodes, [[1, 1, 0, 2, 0, "IMAGE"]], extra=extra))
    assert inputs(result, "3")["images"] == ["1", 0]
    assert places(result, Reason.EVERYWHERE) == ["2", "3"]


def _chain(count: int) -> dict[str, Any]:
    """A chain of reroutes with a node that saves at each."""
    nodes, links = [LOAD], []
    for number in range(1, count + 1):
        origin = 1 if number == 1 else 10 * (number - 1)
        slot = [("", "*", 10 * number)]
        nodes.append(node(10 * number, "Reroute", inputs=slot, outputs=["*"]))
        nodes.append(save(10 * number + 1, 10 * number + 1))
        links.append([10 * number, origin, 0, 10 * number, 0, "*"])
        links.append([10 * number + 1, 10 * number, 0, 10 * number + 1, 0, "*"])
    return workflow(nodes, links)


def test_ten_thousand_nodes_take_linear_time() -> None:
    def seconds(count: int) -> float:
        document = _chain(count)
        start = time.process_time()
        result = flat(document)
        assert inputs(result, str(10 * count + 1))["images"] == ["1", 0]
        return time.process_time() - start

    seconds(10)
    small, large = seconds(300), seconds(3000)
    # Ten times as much; a cost that grows with the square would be a hundred times.
    assert large < 40 * small


def test_bypass_looks_at_the_output_too() -> None:
    slots = [("a", "LATENT,MASK", 1), ("b", "MASK", 2)]
    found = read_node(node(1, "X", inputs=slots, outputs=["IMAGE"]), "1")
    assert found is not None
    chosen = Bypass(found).input(0, "MASK")
    assert chosen is not None
    assert chosen.name == "b"


def test_faults_of_an_api_prompt() -> None:
    prompt = {
        "1": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0], "other": ["9", 0]}},
        "2": {"class_type": "PreviewAny", "inputs": 3, "_meta": {"title": "T"}},
        "3": "no node",
        "4": {"class_type": "PreviewAny", "inputs": {"source": ["x", True]}},
    }
    result = flat(prompt)
    assert bare(result) == {
        "1": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
        "2": {"class_type": "PreviewAny", "inputs": {}},
        "4": {"class_type": "PreviewAny", "inputs": {"source": ["x", True]}},
    }
    assert result.prompt["2"]["_meta"] == {"title": "T"}
    assert places(result, Reason.MISSING_LINK) == ["1"]
    assert places(result, Reason.GRAPH_CYCLE) == ["1"]
    assert places(result, Reason.MALFORMED) == ["3", "2"]
