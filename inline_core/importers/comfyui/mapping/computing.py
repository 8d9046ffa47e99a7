"""What entries compute of a node's inputs on the way: numbers, kinds, and edges for constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from inline_core.errors import shown_value
from inline_core.graph.ports import PortKind
from inline_core.importers.comfyui.mapping.step import Step, Unsupported
from inline_core.importers.comfyui.mapping.values import Constant, Value, Wire

_EXPRESSION: Final = "number/expression"
_SWITCH: Final = "flow/switch"
_MOST_DIGITS: Final = 9
_MOST_SWITCHES: Final = 64


def whole(step: Step, expression: str, **values: Value | None) -> Value:
    """A whole number computed of values by name (`a` to `h`): now if they are known, else a node.

    Raises: Unsupported if it has no value.
    """
    return step.add(_EXPRESSION, {"expression": expression, **values}, suffix="number").out("whole")


def number(step: Step, expression: str, **values: Value | None) -> Value:
    """As `whole`, with its fraction."""
    return step.add(_EXPRESSION, {"expression": expression, **values}, suffix="number").out(
        "number"
    )


def kind_of(step: Step, value: Value | None) -> PortKind:
    """The kind of an edge; of a switch, that of what it chooses from; ANY if nothing says it."""
    for _ in range(_MOST_SWITCHES):
        if not isinstance(value, Wire):
            break
        node = step.draft.nodes[value.node_id]
        port = step.draft.specs[node["type"]].output(value.output)
        if port is not None and port.kind is not PortKind.ANY:
            return port.kind
        edge = node["inputs"].get("on_false") if node["type"] == _SWITCH else None
        value = Wire(edge["from"], edge["output"]) if edge is not None else None
    return PortKind.ANY


def numbered(step: Step, prefix: str) -> list[Value]:
    """The inputs `<prefix>.<word><number>` by their numbers, whatever their order in the prompt.

    Raises: UsesBroken.
    """
    given = step.grown(prefix)
    return [value for _, value in sorted(given, key=lambda entry: _number_of(entry[0]))]


def _number_of(name: str) -> int:
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits[:_MOST_DIGITS] or 0)


def as_wire(step: Step, value: Value, word: str) -> Wire:
    """A value as an edge; a constant gets a node that gives it, `<id>/<word>`.

    Raises: Unsupported for constants that no node gives, and for several values.
    """
    if isinstance(value, Wire):
        return value
    given = value.value if isinstance(value, Constant) else None
    kinds: tuple[tuple[Any, str, str], ...] = (
        (bool, "input/boolean", "value"),
        (int | float, "input/number", "value"),
        (str, "input/text", "text"),
    )
    for kind, node_type, param in kinds:
        if isinstance(given, kind):
            added = step.add(node_type, {param: given}, suffix=word, fold=False)
            wire = next(iter(added.outputs.values()))
            assert isinstance(wire, Wire)
            return wire
    shown = shown_value(given) if isinstance(value, Constant) else "several things in one"
    message = f"its {word} is {shown}, which cannot be wired here"
    raise Unsupported(message)


def ignored(reason: str) -> Callable[[Step], tuple[()]]:
    """An entry for a node that does nothing for what is made."""

    def convert(step: Step) -> tuple[()]:
        step.ignore(reason)
        return ()

    return convert


def refused(reason: str, alternative: str = "") -> Callable[[Step], tuple[()]]:
    """An entry for a node type that is known and cannot be converted."""

    def convert(_: Step) -> tuple[()]:
        raise Unsupported(reason, alternative)

    return convert
