"""Dynamic prompts and comments."""

from __future__ import annotations

import time

import pytest

from inline_core.importers.comfyui.prompt_texts import chosen, without_comments
from inline_core.importers.comfyui.report import Reason
from tests.unit.importers.comfyui.workflows import flat, inputs, node, places, workflow


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a // b\nc", "a \nc"),
        ("a /* b\n // */c", "a c"),
        ("a /* open", "a /* open"),
        ("a /* open // b", "a /* open "),
        ("/**/", ""),
        ("1/2", "1/2"),
    ],
)
def test_comments_go(text: str, wanted: str) -> None:
    assert without_comments(text) == wanted


@pytest.mark.parametrize(
    "text", ['{"a": {"b": 1}}', "plain | text", "{open", "shut}", "(a:1.2)", ""]
)
def test_texts_without_options_stay(text: str) -> None:
    assert chosen(text, 0, "1:text") == text


def test_one_option_is_chosen_by_seed_and_place() -> None:
    text = "a {red|green|blue} {cat|{small|big} dog}"
    wanted = {
        f"a {colour} {animal}"
        for colour in ("red", "green", "blue")
        for animal in ("cat", "small dog", "big dog")
    }
    found = {chosen(text, seed, "1:text") for seed in range(200)}
    assert found == wanted
    assert len({chosen(text, 0, f"{place}:text") for place in range(100)}) > 4
    assert chosen(text, 5, "1:text") == chosen(text, 5, "1:text")


def test_escaped_braces_are_plain() -> None:
    assert chosen(r"\{a\|b\} {c|c}", 0, "") == "{a|b} c"


@pytest.mark.parametrize("text", ["{" * 500_000, "{a|" * 9000 + "}" * 9000, "/*" * 200_000])
def test_hostile_texts_cost_little(text: str) -> None:
    start = time.process_time()
    chosen(without_comments(text), 0, "")
    assert time.process_time() - start < 2


def test_only_prompts_are_changed_and_it_is_told() -> None:
    nodes = [
        node(1, "CLIPTextEncode", ["{cat|dog} // comment"]),
        node(2, "StringReplace", ["{cat|dog} // kept", "a", "b"]),
        node(3, "CLIPTextEncode", ['{"subject": "cat"}']),
    ]
    result = flat(workflow(nodes, []), seed=3)
    assert inputs(result, "1")["text"] in {"cat ", "dog "}
    assert inputs(result, "2")["string"] == "{cat|dog} // kept"
    assert inputs(result, "3")["text"] == '{"subject": "cat"}'
    assert places(result, Reason.DYNAMIC_PROMPT) == ["1"]
    assert places(result, Reason.COMMENT) == ["1"]
    seeds = {inputs(flat(workflow(nodes, []), seed=seed), "1")["text"] for seed in range(20)}
    assert seeds == {"cat ", "dog "}
