"""Whatever stands in a prompt, a conversion never raises, and what it gives is a graph."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from inline_core.graph.document import read_graph
from inline_core.importers.comfyui.converting import convert
from inline_core.importers.comfyui.flattening import FlatWorkflow
from inline_core.importers.comfyui.mapping import flow, masks, media, pictures, words
from inline_core.importers.comfyui.node_table import builtin_table
from tests.unit.importers.comfyui.mapping.prompts import specs

ODD: list[Any] = [
    None, "", "x", "#12345", "take_", True, -1, 0, 3.5, 10**30, float("nan"), float("inf"),
    [], [1, 2, 3], {}, {"x": "y"}, ["i", 0], ["i", 1], ["i", 7], ["gone", 0], ["broken", 0],
    ["z", 0], ["l", 0], ["i", "0"],
]  # fmt: skip
NAMES = (
    "a", "images.image0", "images.image1", "values.a", "values.z", "inputs.input0", "image",
    "mask", "audio", "video", "volume", "colors", "dither", "rotation", "flip_method", "alpha",
    "index", "option1", "optionx", "switch", "boolean", "sharpen_radius", "sigma", "channel",
    "image1", "image2", "crop", "color", "direction", "resize_type.width", "resize_type.match",
    "resize_type.crop", "format.codec", "mode", "case_sensitive", "start", "end", "string",
)  # fmt: skip
ENTRIES = {
    name: entry
    for module in (flow, masks, media, pictures, words)
    for name, entry in module.ENTRIES.items()
}
BEFORE = {
    "i": {"class_type": "LoadImage", "inputs": {"image": "a.png"}},
    "z": {"class_type": "GetImageSize", "inputs": {"image": ["i", 0]}},
    "l": {"class_type": "CreateList", "inputs": {"inputs.input0": ["i", 0], "inputs.input1": 1}},
    "broken": {"class_type": "NobodyKnows", "inputs": {}},
}


def declared_of(kind: str) -> list[str]:
    declared = builtin_table().find(kind)
    return [] if declared is None else [entry.name for entry in declared.inputs]


@pytest.mark.parametrize("kind", sorted(ENTRIES))
def test_nothing_that_stands_in_a_prompt_raises(kind: str) -> None:
    names = list(dict.fromkeys([*declared_of(kind), *NAMES]))
    turns = itertools.chain(
        [{}],
        (dict.fromkeys(names, value) for value in ODD),
        ({name: ODD[(place + turn) % len(ODD)] for place, name in enumerate(names)}
         for turn in range(len(ODD))),
        ({name: value} for name in declared_of(kind) for value in ODD),
    )  # fmt: skip
    for inputs in turns:
        prompt = BEFORE | {"n": {"class_type": kind, "inputs": inputs}}
        prompt["s"] = {"class_type": "PreviewAny", "inputs": {"source": ["n", 0]}}
        result = convert(FlatWorkflow(prompt, (), ()), specs(), lambda _, __: False)
        _, problems = read_graph(result.graph)
        assert not problems
        json.dumps(result.graph)
        assert len(result.nodes) == len(prompt)
