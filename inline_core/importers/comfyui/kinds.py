"""What becomes of a node when a workflow is queued: sent, passed through, folded or left out."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from inline_core.importers.comfyui.document import (
    MODE_BYPASSED,
    MODE_MUTED,
    InputSlot,
    UiNode,
)
from inline_core.importers.comfyui.node_table import NodeTable

NOTE_TYPES: Final = frozenset({"Note", "MarkdownNote"})

_REROUTES: Final = frozenset({"Reroute", "Reroute (rgthree)"})
_GROUP_MARKS: Final = ("workflow>", "workflow/")
_UUID_LENGTH: Final = 36
_UUID_DASHES: Final = 4


class NodeKind(Enum):
    """The parts a node can play."""

    REAL = auto()
    NOTE = auto()
    DECORATION = auto()
    REROUTE = auto()
    PRIMITIVE = auto()
    SET = auto()
    GET = auto()
    EVERYWHERE = auto()
    MUTED = auto()
    BYPASSED = auto()


def kind_of(node: UiNode, table: NodeTable) -> NodeKind:
    """The part of a node; instances of subgraphs count as real, unless muted or bypassed."""
    if node.type in NOTE_TYPES:
        return NodeKind.NOTE
    if node.mode == MODE_MUTED:
        return NodeKind.MUTED
    if node.type in _REROUTES:
        return NodeKind.REROUTE
    if node.mode == MODE_BYPASSED:
        return NodeKind.BYPASSED
    named = {
        "PrimitiveNode": NodeKind.PRIMITIVE,
        "SetNode": NodeKind.SET,
        "GetNode": NodeKind.GET,
    }.get(node.type)
    if named is not None:
        return named
    if "Everywhere" in node.type and not node.outputs:
        return NodeKind.EVERYWHERE
    bare = not node.inputs and not node.outputs and table.find(node.type) is None
    if bare and group_name(node.type) is None and not is_uuid(node.type):
        return NodeKind.DECORATION
    return NodeKind.REAL


def group_name(node_type: str) -> str | None:
    """The name of the group if a type is that of an old group node."""
    mark = next((mark for mark in _GROUP_MARKS if node_type.startswith(mark)), None)
    return node_type[len(mark) :] if mark is not None else None


def is_uuid(text: str) -> bool:
    """Whether a node type looks like the id of a subgraph."""
    return (
        len(text) == _UUID_LENGTH
        and text.count("-") == _UUID_DASHES
        and all(letter in "0123456789abcdef-" for letter in text.lower())
    )


def fits(one: str, other: str) -> bool:
    """Whether two types go together: case-free, lists by comma overlap, `*` goes with all."""
    first, second = _parts(one), _parts(other)
    return "*" in first or "*" in second or not first.isdisjoint(second)


def _parts(kind: str) -> frozenset[str]:
    return frozenset(part.strip() for part in kind.lower().split(","))


class Bypass:
    """Finds the input that stands in for an output of a bypassed node."""

    def __init__(self, node: UiNode) -> None:
        self._node = node
        self._whole: dict[str, int] = {}
        self._part: dict[str, int] = {}
        for number, slot in enumerate(node.inputs):
            self._whole.setdefault(slot.type.lower(), number)
            for part in _parts(slot.type):
                self._part.setdefault(part, number)

    def input(self, slot: int, wanted: str) -> InputSlot | None:
        """The input for output `slot` where the type `wanted` is taken; None if none has it.

        Whoever takes anything gets the input of the same number, or the first.  Else it is the
        input of the same number if its type fits, the first of just this type, or the first that
        fits.
        """
        inputs, outputs = self._node.inputs, self._node.outputs
        same = inputs[slot] if 0 <= slot < len(inputs) else None
        if wanted == "*":
            return same or (inputs[0] if inputs else None)
        output = outputs[slot].type if 0 <= slot < len(outputs) else "*"
        if same is not None and fits(same.type, output) and fits(same.type, wanted):
            return same
        number = self._whole.get(wanted.lower())
        if number is None:
            parts = _parts(wanted) | {"*"}
            found = [self._part[part] for part in parts if part in self._part]
            number = 0 if "*" in _parts(wanted) else min(found, default=None)
        return inputs[number] if number is not None and number < len(inputs) else None
