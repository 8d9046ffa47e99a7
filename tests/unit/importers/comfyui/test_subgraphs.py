"""Subgraphs to any depth, the three generations of promoted values, and old group nodes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from inline_core.errors import InvalidRequest
from inline_core.importers.comfyui.report import Reason
from tests.unit.importers.comfyui.workflows import (
    UUID,
    flat,
    inputs,
    node,
    places,
    subgraph,
    workflow,
)

LATENT = [("w", "INT"), ("LATENT", "LATENT")]


def latent_subgraph(number: int = 1) -> dict[str, Any]:
    """Two latents of one width, the second inner node saved with other values."""
    slot = [("width", "INT", 11, "width")]
    return subgraph(
        number,
        [
            node(5, "EmptyLatentImage", [512, 512, 1], inputs=slot, outputs=["LATENT"]),
            node(
                6,
                "EmptyLatentImage",
                [64, 64, 2],
                inputs=[("width", "INT", 12, "width")],
                outputs=["LATENT"],
            ),
            node(7, "PreviewAny", inputs=[("source", "*", 13)]),
        ],
        [
            [11, -10, 0, 5, 0, "INT"],
            [12, -10, 0, 6, 0, "INT"],
            [13, -10, 0, 7, 0, "*"],
            [14, 5, 0, -20, 0, "LATENT"],
        ],
        [("w", "INT")],
        [("LATENT", "LATENT")],
    )


def instance(node_id: int, number: int = 1, values: Any = None, **more: Any) -> dict[str, Any]:
    more = {"inputs": [("w", "INT", None, "w")], "outputs": ["LATENT"], **more}
    return node(node_id, UUID.format(number), values, **more)


def test_without_a_value_of_its_own_the_first_inner_widget_counts_everywhere() -> None:
    result = flat(workflow([instance(2, values=[])], [], latent_subgraph()))
    assert inputs(result, "2:5")["width"] == 512
    assert inputs(result, "2:6") == {"width": 512, "height": 64, "batch_size": 2}
    assert inputs(result, "2:7") == {"source": 512}


def test_values_by_the_inputs_that_feed_a_widget() -> None:
    result = flat(workflow([instance(2, values=[640])], [], latent_subgraph()))
    assert [inputs(result, f"2:{inner}").get("width") for inner in (5, 6)] == [640, 640]
    assert inputs(result, "2:7") == {"source": 640}
    assert places(result, Reason.SUBGRAPH) == ["2"]


def test_values_with_names() -> None:
    more: Any = {"widgets_values_named": {"w": 1}}
    result = flat(workflow([instance(2, values=[640], **more)], [], latent_subgraph()))
    assert inputs(result, "2:5")["width"] == 640


def test_proxies_with_the_values_inside() -> None:
    more: Any = {"properties": {"proxyWidgets": [["5", "height"], ["-1", "w"]]}}
    result = flat(workflow([instance(2, values=[], **more)], [], latent_subgraph()))
    assert inputs(result, "2:5") == {"width": 512, "height": 512, "batch_size": 1}


def test_proxies_with_values_by_position() -> None:
    proxies = [["5", "height"], ["7", "$$preview"], ["-1", "w"]]
    more: Any = {"properties": {"proxyWidgets": proxies}}
    result = flat(workflow([instance(2, values=[333, 640], **more)], [], latent_subgraph()))
    assert inputs(result, "2:5") == {"width": 640, "height": 333, "batch_size": 1}
    assert places(result, Reason.PROMOTED_VALUE) == ["2:5"]


def test_values_that_do_not_fit_the_promoted_widgets() -> None:
    result = flat(workflow([instance(2, values=[1, 2, 3])], [], latent_subgraph()))
    assert inputs(result, "2:5")["width"] == 512
    assert places(result, Reason.PROMOTED_VALUE) == ["2"]


def test_values_in_quarantine() -> None:
    quarantine = [{"originalEntry": ["-1", "w"], "hostValue": 96}, {"hostValue": 1}, 3]
    more: Any = {"properties": {"proxyWidgetErrorQuarantine": quarantine}}
    result = flat(workflow([instance(2, values=[], **more)], [], latent_subgraph()))
    assert inputs(result, "2:5")["width"] == 96


def test_an_outer_link_wins_and_where_it_is_lost_the_value_counts() -> None:
    nodes = [node(1, "PrimitiveInt", [32, "fixed"], outputs=["INT"]), instance(2, values=[640])]
    nodes[1]["inputs"][0]["link"] = 1
    links = [[1, 1, 0, 2, 0, "INT"]]
    result = flat(workflow(nodes, links, latent_subgraph()))
    assert inputs(result, "2:5")["width"] == ["1", 0]
    nodes[0]["mode"] = 2
    result = flat(workflow(nodes, links, latent_subgraph()))
    assert inputs(result, "2:5")["width"] == 640
    assert places(result, Reason.MUTED)[0] == "1"


def test_a_get_node_reads_a_set_node_outside() -> None:
    body = [
        node(1, "GetNode", ["pic"], outputs=["IMAGE"]),
        node(2, "SaveImage", ["o"], inputs=[("images", "IMAGE", 1)]),
    ]
    inner = subgraph(1, body, [[1, 1, 0, 2, 0, "IMAGE"]])
    nodes = [
        node(1, "LoadImage", ["x", "image"], outputs=["IMAGE", "MASK"]),
        node(2, "SetNode", ["pic"], inputs=[("IMAGE", "IMAGE", 1)]),
        node(3, UUID.format(1)),
    ]
    result = flat(workflow(nodes, [[1, 1, 0, 2, 0, "IMAGE"]], inner))
    assert inputs(result, "3:2")["images"] == ["1", 0]


def test_wide_subgraphs_cost_little() -> None:
    count = 3000
    many = range(count)
    body = [node(n, "PreviewAny", inputs=[("source", "*", n)]) for n in many]
    inner = subgraph(1, body, [[n, -10, 0, n, 0, "*"] for n in many], [("a", "*")])
    slots = [("a", "VAE", None)] * count
    nodes = [node(1, UUID.format(1)), node(2, "X", inputs=slots, outputs=["IMAGE"], mode=4)]
    nodes += [node(n + 10, "SaveImage", ["o"], inputs=[("images", "IMAGE", n)]) for n in many]
    links = [[n, 2, 0, n + 10, 0, "IMAGE"] for n in many]
    start = time.process_time()
    assert len(flat(workflow(nodes, links, inner)).prompt) == 2 * count
    # They take half a second; a cost that grows with the square takes most of a minute.
    assert time.process_time() - start < 5


def nested(depth: int) -> list[dict[str, Any]]:
    """Definition 1 has the nodes, each further one only an instance of the one before."""
    found = [latent_subgraph(1)]
    for number in range(2, depth + 1):
        inner = instance(57, number - 1, values=[])
        inner["inputs"][0]["link"] = 1
        links = [[1, -10, 0, 57, 0, "INT"], [2, 57, 0, -20, 0, "LATENT"]]
        found.append(subgraph(number, [inner], links, [("w", "INT")], [("LATENT", "LATENT")]))
    return found


def test_nested_subgraphs() -> None:
    slot = [("samples", "LATENT", 9)]
    nodes = [instance(76, 3, values=[640]), node(9, "VAEDecode", inputs=slot)]
    result = flat(workflow(nodes, [[9, 76, 0, 9, 0, "LATENT"]], *nested(3)))
    assert set(result.prompt) == {"76:57:57:5", "76:57:57:6", "76:57:57:7", "9"}
    assert inputs(result, "76:57:57:6")["width"] == 640
    assert inputs(result, "9")["samples"] == ["76:57:57:5", 0]
    assert places(result, Reason.SUBGRAPH) == ["76", "76:57", "76:57:57"]


def test_a_subgraph_that_contains_itself() -> None:
    body = [node(1, UUID.format(2), outputs=["IMAGE"])]
    one = subgraph(1, body, [[1, 1, 0, -20, 0, "IMAGE"]], outputs=[("IMAGE", "IMAGE")])
    body = [node(1, UUID.format(1), outputs=["IMAGE"])]
    two = subgraph(2, body, [[1, 1, 0, -20, 0, "IMAGE"]], outputs=[("IMAGE", "IMAGE")])
    nodes = [
        node(4, UUID.format(1), outputs=["IMAGE"]),
        node(5, "SaveImage", ["o"], inputs=[("images", "IMAGE", 1)]),
    ]
    result = flat(workflow(nodes, [[1, 4, 0, 5, 0, "IMAGE"]], one, two))
    assert set(result.prompt) == {"5"}
    assert places(result, Reason.RECURSION) == ["4:1:1"]
    assert "5" in places(result, Reason.SUBGRAPH)


def test_subgraphs_that_multiply_are_refused_soon() -> None:
    definitions = [latent_subgraph(1)]
    definitions += [
        subgraph(number, [node(n, UUID.format(number - 1)) for n in range(10)], [])
        for number in range(2, 60)
    ]
    start = time.process_time()
    with pytest.raises(InvalidRequest, match="more than 100000 nodes"):
        flat(workflow([node(1, UUID.format(59))], [], *definitions))
    assert time.process_time() - start < 5


def test_nesting_beyond_the_limit() -> None:
    result = flat(workflow([instance(1, 70)], [], *nested(70)))
    assert result.prompt == {}
    assert len(places(result, Reason.RECURSION)) == 1


def test_a_definition_that_is_not_in_the_file() -> None:
    result = flat(workflow([node(1, UUID.format(9)), node(2, "workflow/gone")], []))
    assert result.prompt == {}
    assert places(result, Reason.MISSING_DEFINITION) == ["1", "2"]


def test_a_bypassed_instance_acts_as_one_node() -> None:
    body = [node(5, "ImageInvert", inputs=[("image", "IMAGE", 1)], outputs=["IMAGE"])]
    links = [[1, -10, 0, 5, 0, "IMAGE"], [2, 5, 0, -20, 0, "IMAGE"]]
    inner = subgraph(1, body, links, [("a", "IMAGE")], [("IMAGE", "IMAGE")])
    slot = [("a", "IMAGE", 1)]
    nodes = [
        node(1, "LoadImage", ["x", "image"], outputs=["IMAGE", "MASK"]),
        node(2, UUID.format(1), inputs=slot, outputs=["IMAGE"], mode=4),
        node(3, "SaveImage", ["o"], inputs=[("images", "IMAGE", 2)]),
    ]
    outer = [[1, 1, 0, 2, 0, "IMAGE"], [2, 2, 0, 3, 0, "IMAGE"]]
    result = flat(workflow(nodes, outer, inner))
    assert set(result.prompt) == {"1", "3"}
    assert inputs(result, "3")["images"] == ["1", 0]
    nodes[1]["mode"] = 2
    assert "images" not in inputs(flat(workflow(nodes, outer, inner)), "3")


def test_outputs_are_found_by_name_where_the_order_differs() -> None:
    body = [node(5, "LoadImage", ["x", "image"], outputs=["IMAGE", "MASK"])]
    links = [[1, 5, 0, -20, 0, "IMAGE"], [2, 5, 1, -20, 1, "MASK"]]
    inner = subgraph(1, body, links, None, [("IMAGE", "IMAGE"), ("MASK", "MASK")])
    nodes = [
        node(1, UUID.format(1), outputs=["MASK"]),
        node(2, "MaskPreview", inputs=[("mask", "MASK", 1)]),
    ]
    result = flat(workflow(nodes, [[1, 1, 0, 2, 0, "MASK"]], inner))
    assert inputs(result, "2")["mask"] == ["1:5", 1]


def test_a_group_node_with_links_inside_and_an_output() -> None:
    latent = node(0, "EmptyLatentImage", [8, 8, 1], outputs=["LATENT"])
    slots = [("samples", "LATENT", None), ("vae", "VAE", None)]
    decode = node(1, "VAEDecode", inputs=slots, outputs=["IMAGE"])
    group = {"nodes": [latent, decode], "links": [[0, 0, 1, 0, 7, "LATENT"]], "external": []}
    nodes = [
        node(3, "VAELoader", ["v"], outputs=["VAE"]),
        node(
            7,
            "workflow/make",
            [16, 24, 2],
            inputs=[("VAEDecode vae", "VAE", 1)],
            outputs=["IMAGE"],
        ),
        node(8, "SaveImage", ["o"], inputs=[("images", "IMAGE", 2)]),
    ]
    links = [[1, 3, 0, 7, 0, "VAE"], [2, 7, 0, 8, 0, "IMAGE"]]
    result = flat(workflow(nodes, links, extra={"groupNodes": {"make": group}}))
    assert inputs(result, "7:0") == {"width": 16, "height": 24, "batch_size": 2}
    assert inputs(result, "7:1") == {"samples": ["7:0", 0], "vae": ["3", 0]}
    assert inputs(result, "8")["images"] == ["7:1", 0]
    assert places(result, Reason.GROUP_NODE) == ["7"]


def test_a_group_node_with_too_few_values() -> None:
    latent = node(0, "EmptyLatentImage", [8, 8, 1], outputs=["LATENT"])
    group = {"nodes": [latent, "no node"], "links": [["x"], 3]}
    found = workflow([node(7, "workflow>g", [1])], [], extra={"groupNodes": {"g": group}})
    result = flat(found)
    assert inputs(result, "7:0")["width"] == 8
    assert places(result, Reason.VALUE_COUNT) == ["7"]


def test_a_proxy_of_a_nested_instance() -> None:
    more: Any = {"properties": {"proxyWidgets": [["57", "w"]]}}
    definitions = nested(2)
    definitions[1]["nodes"][0]["inputs"][0]["link"] = None
    result = flat(workflow([instance(2, 2, values=[48], **more)], [], *definitions))
    assert inputs(result, "2:57:5")["width"] == 48


def test_definitions_inside_definitions() -> None:
    one, two = nested(2)
    two["definitions"] = {"subgraphs": [one]}
    result = flat(workflow([instance(2, 2, values=[48])], [], two))
    assert inputs(result, "2:57:5")["width"] == 48


def two_widgets() -> dict[str, Any]:
    """One latent with both sides promoted."""
    slots = [("width", "INT", 1, "width"), ("height", "INT", 2, "height")]
    body = [node(5, "EmptyLatentImage", [512, 512, 1], inputs=slots, outputs=["LATENT"])]
    links = [[1, -10, 0, 5, 0, "INT"], [2, -10, 1, 5, 1, "INT"]]
    return subgraph(1, body, links, [("w", "INT"), ("h", "INT")])


def test_values_without_those_of_linked_inputs_and_with_control_words() -> None:
    nodes = [
        node(1, "PrimitiveInt", [32, "fixed"], outputs=["INT"]),
        node(2, UUID.format(1), [96], inputs=[("w", "INT", 1), ("h", "INT", None)]),
        node(3, UUID.format(1), [8, "randomize", 16]),
    ]
    result = flat(workflow(nodes, [[1, 1, 0, 2, 0, "INT"]], two_widgets()))
    assert inputs(result, "2:5") == {"width": ["1", 0], "height": 96, "batch_size": 1}
    assert inputs(result, "3:5") == {"width": 8, "height": 16, "batch_size": 1}


def test_the_first_inner_widget_is_that_of_the_first_link() -> None:
    found = latent_subgraph()
    found["inputs"][0]["linkIds"] = [12, 11, 13]
    result = flat(workflow([instance(2, values=[])], [], found))
    assert [inputs(result, f"2:{inner}")["width"] for inner in (5, 6)] == [64, 64]


def test_members_of_a_group_with_equal_input_names() -> None:
    members = [
        node(0, "VAEDecode", inputs=[("samples", "LATENT", None)], outputs=["IMAGE"]),
        node(1, "VAEDecodeTiled", inputs=[("samples", "LATENT", None)], outputs=["IMAGE"]),
        node(2, "VAEDecode", inputs=[("samples", "LATENT", None)], outputs=["IMAGE"]),
    ]
    names = ["samples", "VAEDecode samples", "VAEDecodeTiled samples"]
    slots = [(name, "LATENT", number) for number, name in enumerate(names)]
    latents = [node(n, "EmptyLatentImage", [8, 8, 1], outputs=["LATENT"]) for n in range(3)]
    group = {"nodes": members, "links": [[0, 0, 9, 0], [-1, 0, 0, 0]]}
    nodes = [*latents, node(7, "workflow>g", inputs=slots)]
    links = [[n, n, 0, 7, n, "LATENT"] for n in range(3)]
    result = flat(workflow(nodes, links, extra={"groupNodes": {"g": group}}))
    found = [inputs(result, f"7:{member}")["samples"][0] for member in range(3)]
    assert found == ["0", "2", "1"]
