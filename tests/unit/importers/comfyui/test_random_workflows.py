"""Random documents: reading gives a workflow or an error of ours, flattening never raises."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from inline_core.errors import InlineError
from inline_core.importers.comfyui.api_prompt import is_finite, is_link
from inline_core.importers.comfyui.flattening import FlatWorkflow, flatten
from inline_core.importers.comfyui.reading import read_workflow, workflow_in
from tests.unit.importers.comfyui.workflows import UUID

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-12, 10**30),
    st.floats(),
    st.sampled_from(["fixed", "image", "scale dimensions", "{a|{b", "// x", "name"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
IDS = st.integers(0, 7)
LINKS = st.integers(0, 14)
TYPES = st.sampled_from(["IMAGE", "*", "INT", "FLOAT,INT", "LATENT"])
NAMES = st.sampled_from(["image", "images", "width", "seed", "text", "resize_type.match", "a"])
KINDS = st.sampled_from(
    [
        "KSampler", "EmptyLatentImage", "LoadImage", "SaveImage", "ResizeImageMaskNode", "SaveVideo",
        "CLIPTextEncode", "PreviewAny", "Custom", "Reroute", "PrimitiveNode", "Note", "SetNode",
        "GetNode", "Anything Everywhere", "workflow>g", "workflow/g", "workflow>h",
        *(UUID.format(number) for number in range(4)),
    ]
)  # fmt: skip
SLOTS = st.fixed_dictionaries(
    {"name": NAMES, "type": TYPES, "link": st.none() | LINKS | ODD},
    optional={"widget": st.fixed_dictionaries({"name": NAMES}) | ODD},
)
PROXIES = st.lists(st.tuples(IDS.map(str) | st.just("-1"), NAMES).map(list) | ODD, max_size=3)
NODES = st.fixed_dictionaries(
    {
        "id": IDS,
        "type": KINDS,
        "mode": st.sampled_from([0, 0, 0, 2, 4, 4, "x"]),
        "inputs": st.lists(SLOTS, max_size=3) | ODD,
        "outputs": st.lists(st.fixed_dictionaries({"name": NAMES, "type": TYPES}), max_size=2),
        "widgets_values": st.lists(ODD, max_size=7) | ODD,
    },
    optional={
        "widgets_values_named": st.dictionaries(NAMES, ODD, max_size=3) | ODD,
        "properties": st.fixed_dictionaries(
            {"proxyWidgets": PROXIES, "proxyWidgetErrorQuarantine": PROXIES | ODD}
        )
        | ODD,
        "index": ODD,
    },
)
ENDS = st.sampled_from([-10, -20, *range(8)])
ARRAYS = st.tuples(LINKS, ENDS, st.integers(-1, 3), ENDS, st.integers(-1, 3), TYPES).map(list)
KEYS = ("id", "origin_id", "origin_slot", "target_id", "target_slot", "type")
WIRES = st.lists(
    ARRAYS | ARRAYS.map(lambda link: dict(zip(KEYS, link, strict=True))) | ODD, max_size=14
)
BODIES = {"nodes": st.lists(NODES | ODD, max_size=8), "links": WIRES}
PORTS = st.lists(
    st.fixed_dictionaries({"name": NAMES, "type": TYPES, "linkIds": st.lists(LINKS, max_size=2)}),
    max_size=3,
)
SUBGRAPHS = st.fixed_dictionaries(
    {**BODIES, "id": st.integers(0, 3).map(UUID.format), "inputs": PORTS, "outputs": PORTS}
)
WORKFLOWS = st.fixed_dictionaries(
    {
        **BODIES,
        "version": st.sampled_from([0.4, 1]),
        "definitions": st.fixed_dictionaries({"subgraphs": st.lists(SUBGRAPHS | ODD, max_size=3)}),
        "extra": st.fixed_dictionaries(
            {
                "groupNodes": st.dictionaries(
                    st.sampled_from(["g", "h"]), st.fixed_dictionaries(BODIES) | ODD, max_size=2
                ),
                "ue_links": st.lists(ODD, max_size=2),
            }
        )
        | ODD,
    }
)
JSON = st.recursive(ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["nodes", "links", "prompt", "workflow", "class_type", "inputs", "1"]), inner, max_size=3), max_leaves=12)  # fmt: skip


def _check(result: FlatWorkflow) -> None:
    """Links lead to nodes of the prompt, and the prompt is JSON."""
    for entry in result.prompt.values():
        for value in entry["inputs"].values():
            assert not is_link(value) or value[0] in result.prompt
            assert is_finite(value)
    json.dumps(result.prompt, allow_nan=False)


@settings(max_examples=250, deadline=None)
@given(WORKFLOWS)
def test_flattening_never_raises(document: dict[str, Any]) -> None:
    try:
        found = workflow_in(document)
    except InlineError:
        return
    result = flatten(found)
    _check(result)
    # Each node of the root is in the prompt or has a line.
    told = {line.node_id for line in result.report}
    for entry in document["nodes"]:
        if isinstance(entry, dict) and "mode" in entry:
            assert str(entry["id"]) in result.prompt or str(entry["id"]) in told
    assert flatten(found) == result or "nan" in repr(document)


@settings(max_examples=150, deadline=None)
@given(JSON)
def test_any_json_is_answered(document: Any) -> None:
    try:
        _check(flatten(read_workflow(json.dumps(document))))
    except InlineError as error:
        assert error.message


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.sampled_from([b"glTF", b"RIFF....WEBP", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe1"]).flatmap(lambda head: st.binary(max_size=60).map(head.__add__)))  # fmt: skip
def test_any_bytes_are_answered(data: bytes) -> None:
    try:
        read_workflow(data)
    except InlineError as error:
        assert error.message
