"""Texts: each node against what Python says, and against wrong input."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from inline_core.errors import InvalidParam
from inline_core.nodes import texts
from inline_core.nodes.patterns import is_cheap


def test_joining_replacing_and_trimming() -> None:
    assert texts.join(first="a", second="b", between=", ") == "a, b"
    assert texts.join(first="a") == "a"
    assert texts.replace(text="a cat, a cat", find="cat", by="dog") == "a dog, a dog"
    assert texts.replace(text="ab", find="", by="-") == "-a-b-"
    assert texts.trim(text=" \n a ") == "a"
    assert texts.trim(text=" a ", side="start") == "a "
    assert texts.trim(text=" a ", side="end") == " a"


def test_cases_parts_and_lengths() -> None:
    text = "héllo wORLD"
    said = [texts.case(text=text, to=to) for to in ("upper", "lower", "capitalise", "title")]
    assert said == ["HÉLLO WORLD", "héllo world", "Héllo world", "Héllo World"]
    assert texts.part(text=text, start=1, end=4) == "éll"
    assert texts.part(text=text, start=-5, end=-1) == "wORL"
    assert texts.part(text=text, start=3, end=99) == "lo wORLD"
    assert texts.length(text=text) == 11


@pytest.mark.parametrize(
    ("relation", "other", "ignore_case", "wanted"),
    [
        ("contains", "WOR", False, False),
        ("contains", "WOR", True, True),
        ("starts", "hel", False, True),
        ("starts", "wor", False, False),
        ("ends", "LD", True, True),
        ("ends", "LD", False, False),
        ("equals", "HELLO world", True, True),
        ("equals", "hello", True, False),
    ],
)
def test_comparing(relation: str, other: str, ignore_case: bool, wanted: bool) -> None:
    found = texts.compare(
        text="hello world", other=other, relation=relation, ignore_case=ignore_case
    )
    assert found is wanted


@pytest.mark.parametrize(
    ("pattern", "more", "wanted"),
    [
        (r"\d+", {}, "12"),
        (r"\d+", {"find": "all"}, "12\n345"),
        (r"(\w)(\d+)", {"find": "all"}, "a\nb"),
        (r"(\w)(\d+)", {"find": "group", "group": 2}, "12"),
        (r"(\w)(\d+)", {"find": "groups", "group": 2}, "12\n345"),
        (r"(\w)(\d+)", {"find": "group", "group": 3}, ""),
        (r"(\w)(\d+)", {"find": "group", "group": 0}, "a12"),
        (r"(z)?a", {"find": "group"}, ""),
        (r"\d", {"find": "group"}, ""),
        (r"A\d", {}, "a1"),
        (r"A\d", {"ignore_case": False}, ""),
        (r"^b\d", {}, ""),
        (r"^b\d", {"multiline": True}, "b3"),
        (r"2.b", {}, ""),
        (r"2.b", {"dot_all": True}, "2\nb"),
        (r"zzz", {"find": "groups"}, ""),
    ],
)
def test_extracting(pattern: str, more: dict[str, Any], wanted: str) -> None:
    assert texts.extract(text="a12\nb345", pattern=pattern, **more) == wanted
    if more.get("find") == "all":
        found: list[Any] = re.findall(pattern, "a12\nb345")
        assert wanted.split("\n") == [one[0] if isinstance(one, tuple) else one for one in found]


def test_substituting_and_matching() -> None:
    assert texts.substitute(text="a1b2", pattern=r"\d", by="-") == "a-b-"
    assert texts.substitute(text="a1b2", pattern=r"\d", by="-", count=1) == "a-b2"
    assert texts.substitute(text="a1", pattern=r"(\w)(\d)", by=r"\2\1") == "1a"
    fenced = texts.substitute(text="```json\n{}\n```", pattern=r"^```(?:json)?\s*\n?", by="")
    assert texts.substitute(text=fenced, pattern=r"\n?```\s*$", by="") == "{}"
    assert texts.matches(text="a1", pattern="A1") is True
    assert texts.matches(text="a1", pattern="A1", ignore_case=False) is False


def test_wrong_expressions_are_told() -> None:
    for pattern, said in (("(", "no regular expression"), ("a" * 2001, "2001 characters")):
        with pytest.raises(InvalidParam, match=said) as caught:
            texts.extract(text="a", pattern=pattern)
        assert caught.value.param == "pattern"
    with pytest.raises(InvalidParam, match="cannot replace"):
        texts.substitute(text="a", pattern="a", by=r"\2")


@pytest.mark.parametrize(
    ("text", "key", "wanted"),
    [
        ('{"a": "x", "b": 1.5}', "a", "x"),
        ('{"a": "x", "b": 1.5}', "b", "1.5"),
        ('{"a": "x"}', "c", ""),
        ('{"a": null}', "a", ""),
        ('{"a": true}', "a", "True"),
        ('{"a": {"mu": 0.0, "id": "V4"}}', "a", "{'mu': 0.0, 'id': 'V4'}"),
        ("[1]", "0", ""),
        ("no json", "a", ""),
        ("[" * 100_000, "a", ""),
    ],
)
def test_a_value_out_of_json(text: str, key: str, wanted: str) -> None:
    assert texts.from_json(text=text, key=key) == wanted


def test_filling_in() -> None:
    assert texts.fill(text="{a} and {b}", a="x", b="y") == "x and y"
    assert texts.fill(text="{{a}} {a}", a="x") == "{a} x"
    assert (
        texts.fill(text="{a:.2f} {b:04d} {c:>5}", a="3.14159", b="7", c="ab") == "3.14 0007    ab"
    )


@pytest.mark.parametrize(
    "text", ["{", "{x}", "{}", "{0}", "{a.__class__}", "{a[0]}", "{a:d}", "{a:99999}", "{a:{b}}"]
)
def test_what_cannot_be_filled_in_is_told(text: str) -> None:
    with pytest.raises(InvalidParam, match="cannot be filled in"):
        texts.fill(text=text, a="x", b="0" * 30)


def test_no_text_grows_without_an_end() -> None:
    long = "a" * 600_000
    grown: list[Callable[[], str]] = [
        lambda: texts.join(first=long, second=long),
        lambda: texts.replace(text=long, find="a", by="ab"),
        lambda: texts.replace(text="ab", find="", by=long),
        lambda: texts.substitute(text=long, pattern="a", by="bc"),
        lambda: texts.substitute(text="a" * 1001, pattern="(a+)", by=r"\1" * 1000),
        lambda: texts.fill(text="{a}{a}", a=long),
    ]
    for make in grown:
        with pytest.raises(InvalidParam, match="at most 1000000 are made"):
            make()
    assert len(texts.substitute(text="a" * 1001, pattern="b", by="c" * 1000)) == 1001


@pytest.mark.parametrize(
    ("pattern", "length", "cheap"),
    [
        (r"\d+", 1000, True),
        (r"^```(?:json)?\s*\n?", 2000, True),
        (r"(a+)+$", 30, False),
        (r"(a|b){2,}", 30, False),
        (r"(\w)\1+", 30, False),
        (r".*.*.*.*x", 1000, False),
        (r".*.*x", 100, True),
    ],
)
def test_which_searches_are_sure_to_be_quick(pattern: str, length: int, cheap: bool) -> None:
    assert is_cheap(pattern, length) is cheap
