"""Texts: known ones are worked out at import, others become nodes."""

from __future__ import annotations

from typing import Any

import pytest

from inline_core.importers.comfyui.converting import NodeState
from tests.unit.importers.comfyui.mapping.prompts import (
    converted,
    nodes_of,
    report_of,
    step,
)


@pytest.mark.parametrize(
    ("kind", "inputs", "wanted"),
    [
        ("StringConcatenate", {"string_a": "a", "string_b": "b", "delimiter": "-"}, "a-b"),
        ("StringConcatenate", {"string_a": "a", "string_b": 5}, "a5"),
        ("StringReplace", {"string": "a b", "find": "b", "replace": "c"}, "a c"),
        ("StringSubstring", {"string": "abcd", "start": 1, "end": 3}, "bc"),
        ("StringLength", {"string": "abcd"}, "4"),
        ("StringTrim", {"string": " a ", "mode": "Left"}, "a "),
        ("CaseConverter", {"string": "ab cd", "mode": "Title Case"}, "Ab Cd"),
        ("StringContains", {"string": "AB", "substring": "b", "case_sensitive": False}, "True"),
        ("StringContains", {"string": "AB", "substring": "b", "case_sensitive": True}, "False"),
        ("StringCompare", {"string_a": "ab", "string_b": "a", "mode": "Starts With"}, "True"),
        ("RegexMatch", {"string": "ab1", "regex_pattern": "[0-9]"}, "True"),
        ("RegexExtract", {"string": "ab1", "regex_pattern": "(b)(.)", "mode": "First Group",
                          "group_index": 2}, "1"),
        ("RegexExtract", {"string": "AB1", "regex_pattern": "b", "mode": "First Match",
                          "case_insensitive": True}, "B"),
        ("RegexReplace", {"string": "a1b2", "regex_pattern": "[0-9]", "replace": "-",
                          "count": 1}, "a-b2"),
        ("StringFormat", {"f_string": "{a} {b:.1f}", "values__a": "x", "values__b": 2.25}, "x 2.2"),
        ("JsonExtractString", {"json_string": '{"a": 5}', "key": "a"}, "5"),
    ],
)  # fmt: skip
def test_what_is_known_is_worked_out(kind: str, inputs: dict[str, Any], wanted: str) -> None:
    prompt = {"n": step(kind, **inputs), "p": step("PreviewAny", source=["n", 0])}
    assert nodes_of(converted(prompt))["p/text"]["text"] == wanted


def test_the_settings_of_a_list_are_read_by_its_choice() -> None:
    settings = '{"Quality": {"steps": 48, "mu": 0.0}, "Default": {"steps": 20, "mu": 0.5}}'
    prompt = {
        "c": step("CustomCombo", choice="Default"),
        "j": step("JsonExtractString", json_string=settings, key=["c", 0]),
        "r": step("StringReplace", string=["j", 0], find="'", replace='"'),
        "k": step("JsonExtractString", json_string=["r", 0], key="mu"),
        "n": step("ComfyNumberConvert", value=["k", 0]),
        "p": step("PreviewAny", source=["n", 0]),
    }
    assert nodes_of(converted(prompt))["p/text"]["text"] == "0.5"


@pytest.mark.parametrize(
    ("kind", "inputs", "wanted"),
    [
        ("StringConcatenate", {"string_a": ["t", 0], "string_b": "b"},
         {"type": "text/join", "first": "t.text", "second": "b", "between": ""}),
        ("StringLength", {"string": ["t", 0]}, {"type": "text/length", "text": "t.text"}),
        ("CaseConverter", {"string": ["t", 0], "mode": "UPPERCASE"},
         {"type": "text/case", "text": "t.text", "to": "upper"}),
        ("StringTrim", {"string": ["t", 0], "mode": "Both"},
         {"type": "text/trim", "text": "t.text", "side": "both"}),
        ("RegexExtract", {"string": ["t", 0], "regex_pattern": "a", "mode": "All Matches",
                          "dotall": True},
         {"type": "text/extract", "text": "t.text", "pattern": "a", "find": "all", "group": 1,
          "dot_all": True}),
        ("StringFormat", {"f_string": "{a}", "values__a": ["z", 0]},
         {"type": "text/format", "text": "{a}", "a": "z.width"}),
        # A search that may take long is never made at import.
        ("RegexReplace", {"string": "a" * 50, "regex_pattern": "(a+)+$", "replace": "b"},
         {"type": "text/substitute", "text": "a" * 50, "pattern": "(a+)+$", "by": "b", "count": 0}),
    ],
)  # fmt: skip
def test_what_is_known_only_later(
    kind: str, inputs: dict[str, Any], wanted: dict[str, Any]
) -> None:
    prompt = {
        "i": step("LoadImage", image="a.png"),
        "t": step("PreviewAny", source=["i", 0]),
        "z": step("GetImageSize", image=["i", 0]),
        "n": step(kind, **inputs),
        "p": step("PreviewAny", source=["n", 0]),
    }
    assert nodes_of(converted(prompt))["n"] == wanted


@pytest.mark.parametrize(
    ("kind", "inputs", "said"),
    [
        ("CaseConverter", {"string": "a", "mode": "odd"}, "'odd'"),
        ("StringFormat", {"f_string": "{a.b}", "values__a": "x"}, "cannot be filled in"),
        ("StringFormat", {"f_string": "{z}", "values__z": "x"}, "the most here"),
        (
            "RegexExtract",
            {"string": "a", "regex_pattern": "[", "mode": "First Match"},
            "no regular",
        ),
    ],
)
def test_what_cannot_be_done_is_said(kind: str, inputs: dict[str, Any], said: str) -> None:
    prompt = {"n": step(kind, **inputs), "p": step("PreviewAny", source=["n", 0])}
    report = report_of(converted(prompt), "n")
    assert report.state is NodeState.UNSUPPORTED
    assert said in report.reason
