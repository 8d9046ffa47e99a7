"""Numbers: expressions equal Python's arithmetic, and nothing else in them is ever computed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from inline_core.errors import InvalidParam
from inline_core.nodes import numbers
from inline_core.nodes.arithmetic import FUNCTIONS, computed


@pytest.mark.parametrize(
    ("text", "values", "wanted"),
    [
        ("a", {"a": 3}, 3),
        ("a + b * 2", {"a": 1, "b": 5}, 11),
        ("(a + 15) // 16 * 16", {"a": 1023}, 1024),
        ("a & -8", {"a": 1023}, 1016),
        ("a % 17 - -a", {"a": 20}, 23),
        ("7 / 2", {}, 3.5),
        ("2 ** -1", {}, 0.5),
        ("~a ^ 3 | 8", {"a": 4}, (~4 ^ 3) | 8),
        ("round (a * 24)", {"a": 1.02}, 24),
        ("round(a, 1)", {"a": 1.25}, 1.2),
        ("max(16, floor(a / 16) * 16)", {"a": 47.9}, 32),
        ("min(a, b, c) + ceil(1.2)", {"a": 3, "b": 2, "c": 9}, 4),
        ("sqrt(16) + log(e) + sin(0) + cos(pi)", {}, 4.0),
        ("int(7.9)", {}, 7),
        ("1 < a <= 3", {"a": 3}, True),
        ("1 < a <= 3", {"a": 4}, False),
        ("a == 2 and b", {"a": 2, "b": 5}, 5),
        ("a != 2 or not b", {"a": 2, "b": 0}, True),
        ("a if b else c", {"a": 1, "b": False, "c": 3}, 3),
        ("true + 1", {}, 2),
        ("a\n +\n b", {"a": 1, "b": 2}, 3),
    ],
)
def test_arithmetic(text: str, values: dict[str, Any], wanted: float) -> None:
    assert computed(text, values) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no expression"),
        ("a +", "no expression"),
        ("(" * 300 + "1" + ")" * 300, "no expression"),
        ("1 + " * 400 + "1", "characters"),
        ("x", "'x', which has no value"),
        ("1 / 0", "division"),
        ("9 ** 99999", "too large"),
        ("pow(9, 99999)", "too large"),
        ("2.0 ** 5000", "no value"),
        ("(0 - 8) ** 0.5", "no finite value"),
        ("sqrt(-1)", "no value"),
        ("exp(1000)", "no value"),
        ("1e308 * 10", "no finite value"),
        ("'a'", "no number"),
        ("'a' * 99", "no number"),
        ("a.real", "not among"),
        ("[1][0]", "not among"),
        ("(lambda: 1)()", "calls what is not known"),
        ("__import__('os')", "calls what is not known"),
        ("a.bit_length()", "calls what is not known"),
        ("round(a, ndigits=1)", "calls what is not known"),
        ("1 << 2", "operator"),
        ("1 in a", "comparison"),
        ("1.5 & 2", "no value"),
        ("max", "'max', which has no value"),
        ("max(1)", "no value"),
    ],
)
def test_what_is_no_arithmetic_is_told(text: str, said: str) -> None:
    with pytest.raises(InvalidParam, match=said) as caught:
        computed(text, {"a": 1})
    assert caught.value.param == "expression"


def test_the_description_names_every_function() -> None:
    described = numbers.expression.__doc__ or ""
    assert all(name in described for name in FUNCTIONS)


def test_an_expression_gives_three_kinds_of_result() -> None:
    assert numbers.expression(expression="a / b", a=7, b=2) == (3.5, 3, True)
    assert numbers.expression(expression="-a / b", a=7, b=2) == (-3.5, -3, True)
    assert numbers.expression(expression="a - h", a=1, h=1) == (0.0, 0, False)
    with pytest.raises(InvalidParam, match="too large"):
        numbers.expression(expression="9 ** 400")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("12", (12.0, 12)),
        (" 3.7 ", (3.7, 3)),
        ("-3.7", (-3.7, -3)),
        ("1e3", (1000.0, 1000)),
        ("True", (1.0, 1)),
        ("false", (0.0, 0)),
        (5, (5.0, 5)),
        (2.5, (2.5, 2)),
        ("9007199254740993", (9007199254740992.0, 9007199254740993)),
    ],
)
def test_a_text_becomes_a_number(given: Any, wanted: tuple[float, int]) -> None:
    assert numbers.convert(value=given) == wanted


@pytest.mark.parametrize("given", ["", "six", "1,5", "nan", "inf"])
def test_other_texts_are_no_numbers(given: str) -> None:
    with pytest.raises(InvalidParam, match="is no number"):
        numbers.convert(value=given)


@pytest.mark.parametrize("ratio", list(numbers.RATIOS))
@pytest.mark.parametrize(("megapixels", "multiple"), [(1.0, 8), (0.4, 32), (2.0, 64), (16, 4)])
def test_a_resolution_has_its_proportions_and_size(
    ratio: str, megapixels: float, multiple: int
) -> None:
    width, height = numbers.resolution(ratio=ratio, megapixels=megapixels, multiple=multiple)
    wide, high = numbers.RATIOS[ratio]
    exact = math.sqrt(megapixels * 2**20 * wide / high), math.sqrt(megapixels * 2**20 * high / wide)
    for side, wanted in zip((width, height), exact, strict=True):
        assert side % multiple == 0
        assert abs(side - wanted) <= multiple / 2 + 1e-6


def test_resolutions_that_are_known() -> None:
    assert numbers.resolution() == (1024, 1024)
    assert numbers.resolution(ratio="16:9", multiple=32) == (1376, 768)
    with pytest.raises(InvalidParam, match="'5:4' is not known"):
        numbers.resolution(ratio="5:4")


def test_a_switch_gives_what_was_chosen() -> None:
    here, there = object(), object()
    assert numbers.switch(here, there) is here
    assert numbers.switch(here, there, yes=True) is there
    assert numbers.switch(0, 1) == 0
    with pytest.raises(InvalidParam, match="on_true") as caught:
        numbers.switch(here, None, yes=True)
    assert caught.value.port == "on_true"
    assert numbers.number(value=3) == 3
    assert numbers.boolean(value=True) is True
