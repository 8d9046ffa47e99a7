"""Switches, constants, arithmetic and conversions of values."""

from __future__ import annotations

import ast
import string
from collections.abc import Mapping
from typing import Any, Final

from inline_core.errors import InvalidParam
from inline_core.importers.comfyui.mapping.computing import as_wire, numbered, refused
from inline_core.importers.comfyui.mapping.step import Direct, Entry, Outputs, Step, Unsupported
from inline_core.importers.comfyui.mapping.values import Broken, Constant, Several, Value
from inline_core.nodes.arithmetic import FUNCTIONS, parsed
from inline_core.nodes.numbers import RATIOS

_NAMES: Final = "abcdefgh"
_LISTS: Final = "it runs what comes after it once for each part of a list"


def _constant(name: str) -> Entry:
    """A node that gives its only value on."""

    def convert(step: Step) -> Outputs:
        return [step.needed(name)]

    return convert


def _whole(step: Step) -> Outputs:
    value = step.needed("value")
    if isinstance(value, Constant):
        return [Constant(_plain_int(value.value), value.origin)]
    return [step.add("number/convert", {"value": value}).out("whole")]


def _plain_int(value: Any) -> Any:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        message = "its value is no number"
        raise Unsupported(message) from None


def _fraction(step: Step) -> Outputs:
    value = step.needed("value")
    if isinstance(value, Constant):
        try:
            return [Constant(float(value.value), value.origin)]
        except (TypeError, ValueError, OverflowError):
            message = "its value is no number"
            raise Unsupported(message) from None
    return [step.add("number/convert", {"value": value}).out("number")]


# ---- switches ------------------------------------------------------------------------------------


def _switch(step: Step) -> Outputs:
    """What was chosen; of a branch that was not chosen nothing is asked."""
    condition = step.needed("switch")
    if isinstance(condition, Constant):
        return [_branch(step, "on_true" if condition.value else "on_false")]
    on_false, on_true = _branch(step, "on_false"), _branch(step, "on_true")
    if on_false == on_true:
        return [on_false]
    if isinstance(on_false, Several) or isinstance(on_true, Several):
        message = "which of two models it gives is only known while the workflow runs"
        raise Unsupported(message, "set its switch to a fixed value")
    wired = {
        "yes": condition,
        "on_false": as_wire(step, on_false, "on_false"),
        "on_true": as_wire(step, on_true, "on_true"),
    }
    step.warn("both branches are computed: which is wanted is only known while the graph runs")
    return [step.add("flow/switch", wired).out("value")]


def _branch(step: Step, name: str) -> Value:
    found = step.value(name)
    if found is None:
        message = f"its {name!r} is what it would give, and is not connected"
        raise Unsupported(message)
    return found


def _soft_switch(step: Step) -> Outputs:
    """A switch that gives what there is if only one branch is connected."""
    there = [name for name in ("on_false", "on_true") if step.has(name)]
    return [step.value(there[0])] if len(there) == 1 else _switch(step)


def _not(step: Step) -> Outputs:
    inputs = {"expression": "not a", "a": step.needed("boolean")}
    return [step.add("number/expression", inputs).out("boolean")]


# ---- numbers -------------------------------------------------------------------------------------


def _expression(step: Step) -> Outputs:
    """An expression with its values; names that our node does not have become some that it has."""
    text = step.constant("expression", "")
    if not isinstance(text, str):
        message = "its expression is no text"
        raise Unsupported(message)
    values = {name: value for name, value in step.grown("values") if name.isidentifier()}
    if not set(values) <= set(_NAMES):
        text, values = _renamed(text, values)
    added = step.add("number/expression", {"expression": text, **values})
    return [added.out("number"), added.out("whole"), added.out("boolean")]


class _Names(ast.NodeTransformer):
    """Puts other names, or numbers, in the place of names."""

    def __init__(self, known: Mapping[str, ast.expr]) -> None:
        self._known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return node if node.id in FUNCTIONS else self._known.get(node.id, node)


def _renamed(text: str, values: Mapping[str, Value]) -> tuple[str, dict[str, Value]]:
    known: dict[str, ast.expr] = {}
    wired: dict[str, Value] = {}
    for name, value in values.items():
        if isinstance(value, Constant) and isinstance(value.value, int | float):
            known[name] = ast.Constant(value.value)
            continue
        if len(wired) == len(_NAMES):
            message = f"more than {len(_NAMES)} of its values are computed while the workflow runs"
            raise Unsupported(message)
        ours = _NAMES[len(wired)]
        known[name] = ast.Name(ours)
        wired[ours] = value
    try:
        tree = _Names(known).visit(parsed(text))
    except InvalidParam as error:
        raise Unsupported(error.message) from error
    return ast.unparse(tree), wired


def _resolution(step: Step) -> Outputs:
    chosen = step.constant("aspect_ratio", "1:1 (Square)")
    ratio = str(chosen).split(" ", 1)[0]
    if ratio not in RATIOS:
        message = f"its aspect ratio {chosen!r} is not known here"
        raise Unsupported(message)
    added = step.add(
        "number/resolution",
        {
            "ratio": ratio,
            "megapixels": step.value("megapixels"),
            "multiple": step.value("multiple"),
        },
    )
    return [added.out("width"), added.out("height")]


def _combo(step: Step) -> Outputs:
    """A choice as a text, and its place in the list (where the file still has the list)."""
    choice = step.needed("choice")
    return [choice, _place_of(step, choice)]


def _place_of(step: Step, choice: Value) -> Value | None:
    options, given = _options(step), step.inputs.get("index")
    if isinstance(choice, Constant):
        if choice.value in options:
            return Constant(options.index(choice.value))
        if isinstance(given, Constant) and isinstance(given.value, int):
            return given
    return Broken(step.node_id)


def _options(step: Step) -> list[Any]:
    """The values of `option1`, `option2`, ... in their order."""
    found = {
        int(name.removeprefix("option")): value.value
        for name, value in step.inputs.items()
        if name.removeprefix("option").isdecimal() and isinstance(value, Constant)
    }
    return [found[place] for place in sorted(found)]


def _colour(step: Step) -> Outputs:
    """A colour as a number, as a text, and its alpha."""
    text = str(step.constant("color", "#ffffff")).removeprefix("#")
    if len(text) not in {6, 8} or set(text) - set(string.hexdigits):
        message = f"{text!r} is no colour"
        raise Unsupported(message)
    alpha = int(text[6:], 16) / 255 if len(text) == len("rrggbbaa") else 1.0
    return [Constant(int(text[:6], 16)), Constant(f"#{text[:6]}"), Constant(alpha)]


# ---- lists ---------------------------------------------------------------------------------------


def _list(step: Step) -> Outputs:
    parts = numbered(step, "inputs")
    if any(isinstance(part, Several) for part in parts):
        message = "a list in a list is not converted"
        raise Unsupported(message)
    return [Several({str(index): part for index, part in enumerate(parts)})]


def _item(step: Step) -> Outputs:
    """An item of a list that was made of single things."""
    source, index = step.needed("list"), step.constant("index", 0)
    parts = list(source.parts.values()) if isinstance(source, Several) else [source]
    if not isinstance(index, int) or not -len(parts) <= index < len(parts):
        message = f"the list has {len(parts)} items, and none is number {index}"
        raise Unsupported(message)
    return [parts[index]]


def _box(step: Step) -> Outputs:
    """A rectangle as one value."""
    names = ("x", "y", "width", "height")
    return [Constant({name: step.constant(name, 0) for name in names})]


def _size(step: Step) -> Outputs:
    image = step.needed("image")
    added = step.add("image/size", {"image": image})
    return [added.out(port) for port in ("width", "height", "count")]


def _shown(step: Step) -> Outputs:
    """A sink that shows a value as text, and gives the text on."""
    source = step.needed("source")
    if isinstance(source, Constant) and not isinstance(source.value, str):
        source = Constant(str(source.value))
    if isinstance(source, Several):
        message = "what it shows has no text here"
        raise Unsupported(message)
    wired = as_wire(step, source, "text")
    added = step.sink("output/text", {"value": wired})
    return [source if isinstance(source, Constant) else added.out("text")]


ENTRIES: Final[Mapping[str, Entry]] = {
    "PrimitiveInt": _whole,
    "PrimitiveFloat": _fraction,
    "PrimitiveBoolean": _constant("value"),
    "PrimitiveString": _constant("value"),
    "PrimitiveStringMultiline": _constant("value"),
    "SeedNode": _constant("seed"),
    "ComfySwitchNode": _switch,
    "ComfySoftSwitchNode": _soft_switch,
    "InvertBooleanNode": _not,
    "ComfyMathExpression": _expression,
    "ComfyNumberConvert": Direct("number/convert", {"value": "value"}, outputs=("number", "whole")),
    "CustomCombo": _combo,
    "ResolutionSelector": _resolution,
    "ColorToRGBInt": _colour,
    "PrimitiveBoundingBox": _box,
    "GetImageSize": _size,
    "PreviewAny": _shown,
    "CreateList": _list,
    "GetItemFromList": _item,
    "StartLoop": refused(_LISTS, "run the workflow once for each turn"),
    "EndLoop": refused(_LISTS, "run the workflow once for each turn"),
}
