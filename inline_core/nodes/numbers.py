"""Numbers and booleans: given, computed, converted, and what chooses between things."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

from inline_core.errors import InvalidParam, shown_value
from inline_core.graph.ports import PortKind
from inline_core.nodes.arithmetic import Number, computed
from inline_core.nodes.base import Param, Port, node
from inline_core.nodes.pixels.sizes import MEGAPIXEL

_LARGEST: Final = 2.0**63
Value = Annotated[float, Param(min=-_LARGEST, max=_LARGEST, step=0.01)]

RESULTS: Final = (
    Port(PortKind.NUMBER),
    Port(PortKind.NUMBER, "Whole number", id="whole"),
    Port(PortKind.BOOLEAN),
)
_BOTH: Final = RESULTS[:2]

RATIOS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        f"{width}:{height}": (width, height)
        for width, height in [(1, 1), (2, 3), (3, 2), (3, 4), (4, 3), (9, 16), (16, 9), (21, 9)]
    }
)
_RATIO_OPTIONS: Final = tuple((name, name) for name in RATIOS)


@node(
    "input/number",
    title="Number",
    category="Input",
    icon="hash",
    outputs=[Port(PortKind.NUMBER)],
)
def number(*, value: Value = 0.0) -> float:
    """Give a number to other nodes, or to params of theirs."""
    return value


@node(
    "input/boolean",
    title="Yes or No",
    category="Input",
    icon="toggle-left",
    outputs=[Port(PortKind.BOOLEAN)],
)
def boolean(*, value: bool = False) -> bool:
    """Give yes or no to other nodes, or to params of theirs."""
    return value


@node(
    "number/expression",
    title="Expression",
    category="Values",
    icon="calculator",
    outputs=RESULTS,
)
def expression(
    *,
    expression: str = "a",
    a: Value = 0.0,
    b: Value = 0.0,
    c: Value = 0.0,
    d: Value = 0.0,
    e: Value = 0.0,
    f: Value = 0.0,
    g: Value = 0.0,
    h: Value = 0.0,
) -> tuple[float, int, bool]:
    """Compute with numbers: `max(a * 2, b // 8)`, `a > 1 and not b`, `a if c else b`.

    Known are numbers, + - * / // % **, & | ^ ~, comparisons, and/or/not, x if c else y, and the
    functions abs, bool, ceil, cos, exp, float, floor, int, log, log2, log10, max, min, pow, round,
    sin, sqrt, tan and trunc.  The whole number is the result without its fraction.
    Raises: InvalidParam for anything else, and for what has no finite value.
    """
    values: dict[str, Number] = {"a": a, "b": b, "c": c, "d": d, "e": e, "f": f, "g": g, "h": h}
    return _results(computed(expression, values))


def _results(result: Number) -> tuple[float, int, bool]:
    try:
        return float(result), int(result), bool(result)
    except OverflowError as error:
        message = "the result is too large for a number"
        raise InvalidParam(message, param="expression") from error


@node(
    "number/convert",
    title="Convert to Number",
    category="Values",
    icon="hash",
    outputs=_BOTH,
)
def convert(*, value: str = "0") -> tuple[float, int]:
    """Make a number of a text; yes is 1, no is 0.  The whole number is without its fraction.

    Raises: InvalidParam for a text that is none.
    """
    text = str(value).strip()
    truth = {"true": 1, "false": 0}.get(text.lower())
    if truth is not None:
        return float(truth), truth
    try:
        return float(text), int(text)
    except ValueError:
        pass
    try:
        found = float(text)
        return found, int(found)
    except (ValueError, OverflowError) as error:
        message = f"{shown_value(text)} is no number"
        raise InvalidParam(message, param="value") from error


@node(
    "number/resolution",
    title="Resolution",
    category="Values",
    icon="maximize",
    outputs=[Port(PortKind.NUMBER, id="width"), Port(PortKind.NUMBER, id="height")],
)
def resolution(
    *,
    ratio: Annotated[str, Param(label="Proportions", options=_RATIO_OPTIONS)] = "1:1",
    megapixels: Annotated[float, Param(min=0.01, max=95.0, step=0.01)] = 1.0,
    multiple: Annotated[int, Param(label="Round to a multiple of", min=1, max=1024, step=1)] = 8,
) -> tuple[int, int]:
    """Give the width and height of some proportions that have so many megapixels (1024 x 1024).

    Each side is rounded to the nearest multiple.  Raises: InvalidParam for unknown proportions.
    """
    if ratio not in RATIOS:
        message = f"{shown_value(ratio)} is not known; there are {', '.join(RATIOS)}"
        raise InvalidParam(message, param="ratio")
    wide, high = RATIOS[ratio]
    unit = math.sqrt(megapixels * MEGAPIXEL / (wide * high))
    sides = (max(round(side * unit / multiple), 1) * multiple for side in (wide, high))
    width, height = sides
    return width, height


@node(
    "flow/switch",
    title="Switch",
    category="Values",
    icon="git-branch",
    outputs=[Port(PortKind.ANY, "Value", id="value")],
)
def switch(
    on_false: Annotated[Any, Port(PortKind.ANY, "If no")] = None,
    on_true: Annotated[Any, Port(PortKind.ANY, "If yes")] = None,
    *,
    yes: Annotated[bool, Param(label="Yes")] = False,
) -> Any:
    """Give one of two values, whatever they are.  Both are computed.

    Raises: InvalidParam if the one that is wanted is not wired.
    """
    chosen = on_true if yes else on_false
    if chosen is None:
        message = f"nothing came to {'on_true' if yes else 'on_false'!r}, which is to be given on"
        raise InvalidParam(message, port="on_true" if yes else "on_false")
    return chosen
