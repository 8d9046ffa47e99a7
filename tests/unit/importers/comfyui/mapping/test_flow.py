"""Constants, switches and arithmetic: known ones are computed at import, others become nodes."""

from __future__ import annotations

from typing import Any

import pytest

from inline_core.importers.comfyui.converting import NodeState
from tests.unit.importers.comfyui.mapping.prompts import (
    Prompt,
    converted,
    nodes_of,
    report_of,
    step,
)

IMAGE = {"i": step("LoadImage", image="a.png")}


def shown(*links: Any, **nodes: dict[str, Any]) -> list[Any]:
    """What `PreviewAny` nodes on some outputs show: a text, or the edge it comes by."""
    prompt = IMAGE | nodes
    for number, link in enumerate(links):
        prompt[f"p{number}"] = step("PreviewAny", source=link)
    found = nodes_of(converted(prompt))
    values = []
    for number in range(len(links)):
        edge = found[f"p{number}"]["value"]
        constant = f"p{number}/text"
        values.append(found[constant]["text"] if edge == f"{constant}.text" else edge)
    return values


@pytest.mark.parametrize(
    ("kind", "inputs", "wanted"),
    [
        ("PrimitiveInt", {"value": 3}, ["3"]),
        ("PrimitiveInt", {"value": 3.7}, ["3"]),
        ("PrimitiveFloat", {"value": 3}, ["3.0"]),
        ("PrimitiveBoolean", {"value": True}, ["True"]),
        ("PrimitiveString", {"value": "a"}, ["a"]),
        ("PrimitiveStringMultiline", {"value": "a\nb"}, ["a\nb"]),
        ("SeedNode", {"seed": 2**62}, [str(2**62)]),
        ("InvertBooleanNode", {"boolean": True}, ["False"]),
        ("ComfyNumberConvert", {"value": "2.5"}, ["2.5", "2"]),
        ("ComfyNumberConvert", {"value": True}, ["1.0", "1"]),
        ("ComfyMathExpression", {"expression": "a/b", "values__a": 7, "values__b": 2},
         ["3.5", "3", "True"]),
        ("ComfyMathExpression", {"expression": "max(z, i) + y", "values__z": 7, "values__i": 2,
                                 "values__y": True}, ["8.0", "8", "True"]),
        ("ResolutionSelector", {"aspect_ratio": "16:9 (Widescreen)", "megapixels": 1,
                                "multiple": 32}, ["1376", "768"]),
        ("CustomCombo", {"choice": "b", "option1": "a", "option2": "b"}, ["b", "1"]),
        ("CustomCombo", {"choice": "b", "index": 4}, ["b", "4"]),
        ("ColorToRGBInt", {"color": "#0102ff"}, [str(0x0102FF), "#0102ff", "1.0"]),
        ("ColorToRGBInt", {"color": "#0102ff80"}, [str(0x0102FF), "#0102ff", str(128 / 255)]),
    ],
)  # fmt: skip
def test_what_is_known_is_computed(kind: str, inputs: dict[str, Any], wanted: list[str]) -> None:
    links = [["n", slot] for slot in range(len(wanted))]
    assert shown(*links, n=step(kind, **inputs)) == wanted


def test_sizes_are_known_only_later() -> None:
    size = {"z": step("GetImageSize", image=["i", 0])}
    links = [["z", 0], ["z", 1], ["z", 2], ["t", 0]]
    assert shown(*links, t=step("PrimitiveInt", value=["z", 0]), **size) == [
        "z.width", "z.height", "z.count", "t.whole",
    ]  # fmt: skip
    halved = step("ComfyMathExpression", expression="x / y + q", values__x=["z", 0], values__y=2,
                  values__q=["z", 1])  # fmt: skip
    prompt: Prompt = IMAGE | size | {"m": halved, "p": step("PreviewAny", source=["m", 2])}
    nodes = nodes_of(converted(prompt))
    assert nodes["m"] == {
        "type": "number/expression", "expression": "a / 2 + b", "a": "z.width", "b": "z.height",
    }  # fmt: skip
    assert nodes["p"]["value"] == "m.boolean"


def test_a_known_switch_asks_nothing_of_the_other_branch() -> None:
    prompt = {
        "b": step("NobodyKnows", a=1),
        "w": step("ComfySwitchNode", switch=["t", 0], on_false=["b", 0], on_true="yes"),
        "t": step("PrimitiveBoolean", value=True),
        "p": step("PreviewAny", source=["w", 0]),
    }
    result = converted(prompt)
    assert nodes_of(result)["p/text"]["text"] == "yes"
    assert not result.unsupported
    prompt["t"]["inputs"]["value"] = False
    result = converted(prompt)
    assert report_of(result, "w").state is NodeState.BROKEN
    assert [node.node_id for node in result.unsupported] == ["b"]


def test_a_branch_that_is_not_there_is_told() -> None:
    prompt = {
        "w": step("ComfySwitchNode", switch=True, on_false="no"),
        "p": step("PreviewAny", source=["w", 0]),
    }
    report = report_of(converted(prompt), "w")
    assert report.state is NodeState.UNSUPPORTED
    assert "'on_true'" in report.reason
    prompt["w"] = step("ComfySoftSwitchNode", switch=True, on_false="no")
    assert nodes_of(converted(prompt))["p/text"]["text"] == "no"


def test_a_switch_that_is_known_only_later() -> None:
    prompt = IMAGE | {
        "z": step("GetImageSize", image=["i", 0]),
        "m": step("ComfyMathExpression", expression="a > 512", values__a=["z", 0]),
        "w": step("ComfySwitchNode", switch=["m", 2], on_false=20, on_true=False),
        "v": step("ComfySwitchNode", switch=["m", 2], on_false="a", on_true=["i", 0]),
        "u": step("ComfySwitchNode", switch=["m", 2], on_false=["i", 0], on_true=["i", 0]),
        "p": step("PreviewAny", source=["w", 0]),
        "q": step("PreviewAny", source=["v", 0]),
        "r": step("PreviewAny", source=["u", 0]),
    }
    result = converted(prompt)
    nodes = nodes_of(result)
    assert nodes["w"] == {
        "type": "flow/switch", "yes": "m.boolean", "on_false": "w/on_false.number",
        "on_true": "w/on_true.boolean",
    }  # fmt: skip
    assert nodes["w/on_false"] == {"type": "input/number", "value": 20}
    assert nodes["w/on_true"] == {"type": "input/boolean", "value": False}
    assert nodes["v/on_false"] == {"type": "input/text", "text": "a"}
    assert nodes["v"]["on_true"] == "i/parts.image"
    assert nodes["r"]["value"] == "i/parts.image"
    assert any("both branches" in warning for warning in report_of(result, "w").warnings)


def test_lists_are_taken_apart() -> None:
    parts = {"l": step("CreateList", inputs__input0="a", inputs__input1=["i", 0])}
    for index, wanted in ((0, "a"), (1, "i/parts.image"), (-2, "a")):
        item = step("GetItemFromList", list=["l", 0], index=index)
        assert shown(["n", 0], n=item, **parts) == [wanted]
    prompt = IMAGE | parts | {
        "n": step("GetItemFromList", list=["l", 0], index=2),
        "p": step("PreviewAny", source=["n", 0]),
        "q": step("PreviewAny", source=["l", 0]),
    }  # fmt: skip
    result = converted(prompt)
    assert "none is number 2" in report_of(result, "n").reason
    assert report_of(result, "q").state is NodeState.UNSUPPORTED


@pytest.mark.parametrize(
    ("kind", "inputs", "said"),
    [
        ("ComfyMathExpression", {"expression": "a +", "values__a": 1}, "no expression"),
        ("ComfyMathExpression", {"expression": "x +", "values__x": 1}, "no expression"),
        (
            "ComfyMathExpression",
            {"expression": "a / b", "values__a": 1, "values__b": 0},
            "no value",
        ),
        ("ComfyNumberConvert", {"value": "six"}, "no number"),
        ("PrimitiveInt", {"value": "six"}, "no number"),
        ("PrimitiveFloat", {"value": "six"}, "no number"),
        ("ResolutionSelector", {"aspect_ratio": "5:4"}, "'5:4'"),
        ("ColorToRGBInt", {"color": "red"}, "no colour"),
        ("StartLoop", {}, "each part of a list"),
    ],
)
def test_what_cannot_be_done_is_said(kind: str, inputs: dict[str, Any], said: str) -> None:
    prompt = {"n": step(kind, **inputs), "p": step("PreviewAny", source=["n", 0])}
    report = report_of(converted(prompt), "n")
    assert report.state is NodeState.UNSUPPORTED
    assert said in report.reason


def test_the_place_of_a_choice_is_missing_where_the_list_is() -> None:
    prompt = {
        "n": step("CustomCombo", choice="b"),
        "p": step("PreviewAny", source=["n", 0]),
        "q": step("PreviewAny", source=["n", 1]),
    }
    result = converted(prompt)
    assert nodes_of(result)["p/text"]["text"] == "b"
    assert report_of(result, "q").state is NodeState.BROKEN


def test_a_preview_gives_its_text_on() -> None:
    prompt = IMAGE | {
        "z": step("GetImageSize", image=["i", 0]),
        "p": step("PreviewAny", source=["z", 0]),
        "q": step("StringConcatenate", string_a=["p", 0], string_b="px", delimiter=" "),
        "r": step("PreviewAny", source=["q", 0]),
    }
    result = converted(prompt)
    assert result.targets == ("p", "r")
    assert nodes_of(result)["q"] == {
        "type": "text/join", "first": "p.text", "second": "px", "between": " ",
    }  # fmt: skip
