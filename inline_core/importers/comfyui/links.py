"""Follows a link to what feeds it: a node that runs, a constant, or nothing.

Reroutes, Set and Get nodes, primitives, bypassed nodes and the ports of subgraphs are passed
through.  Each stretch is followed once, so the cost is linear in the links.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from inline_core.importers.comfyui.document import INPUT_NODE, MODE_MUTED, UiNode
from inline_core.importers.comfyui.kinds import Bypass, NodeKind, kind_of
from inline_core.importers.comfyui.node_table import NOTHING, NodeTable
from inline_core.importers.comfyui.report import Reason
from inline_core.importers.comfyui.scopes import Scope, first_value


@dataclass(frozen=True, slots=True)
class Source:
    """Output `slot` of the node with the flattened id `node_id`."""

    node_id: str
    slot: int


@dataclass(frozen=True, slots=True)
class Lost:
    """No source; `why` reads on from "the link is lost: "."""

    why: str
    reason: Reason = Reason.LOST_LINK


@dataclass(frozen=True, slots=True)
class Constant:
    """A value, of a primitive or promoted to an instance; `after` is the link it stands in for."""

    value: Any
    after: Lost | None = None


Resolved = Source | Constant | Lost
_Step = tuple[Scope, str]
_Key = tuple[int, str, str]

_CYCLE: Final = Lost("it leads back to itself", Reason.LINK_CYCLE)
_OPEN: Final = Lost("the subgraph input it comes from is not connected", Reason.STALE_INPUT)


class LinkResolver:
    """Resolves the links of one workflow; `port_value` gives the value of an unlinked port."""

    def __init__(self, table: NodeTable, port_value: Callable[[Scope, int], Any]) -> None:
        self._table = table
        self._port_value = port_value
        self._known: dict[_Key, Resolved] = {}
        self._bypasses: dict[tuple[int, str], Bypass] = {}

    def resolve(self, scope: Scope, link_id: str, wanted: str) -> Resolved:
        """What feeds a link of a scope, for an input of the type `wanted`."""
        trail: list[tuple[_Key, Scope, int | None]] = []
        while True:
            key = (scope.index, link_id, wanted)
            known = self._known.get(key)
            if known is not None:
                result = known
                break
            # Stands until the end is found; meeting it again means that the links form a ring.
            self._known[key] = _CYCLE
            trail.append((key, scope, _port_of(scope, link_id)))
            step = self._step(scope, link_id, wanted)
            if isinstance(step, tuple):
                scope, link_id = step
                continue
            result = step
            break
        for key, at, port in reversed(trail):
            if isinstance(result, Lost) and port is not None:
                # Where an outer link leads nowhere, the value of the instance counts.
                value = self._port_value(at, port)
                after = None if result is _OPEN else result
                result = result if value is NOTHING else Constant(value, after)
            self._known[key] = result
        return result

    def _step(self, scope: Scope, link_id: str, wanted: str) -> _Step | Resolved:
        link = scope.body.links.get(link_id)
        if link is None:
            return Lost(f"link {link_id} is not in the file", Reason.MISSING_LINK)
        if link.origin == INPUT_NODE and scope.parent is not None:
            return self._from_port(scope, link.origin_slot)
        node = scope.body.nodes.get(link.origin)
        if node is None:
            why = f"node {scope.id_of(link.origin)} is not in the file"
            return Lost(why, Reason.MISSING_LINK)
        return self._from_node(scope, node, link.origin_slot, wanted)

    def _from_port(self, scope: Scope, slot: int) -> _Step | Resolved:
        inputs = scope.definition.inputs if scope.definition is not None else ()
        if not 0 <= slot < len(inputs):
            return Lost("the subgraph has no such input", Reason.MISSING_LINK)
        outer = scope.links_by_input.get(inputs[slot].name)
        if outer is not None and scope.parent is not None:
            return scope.parent, outer
        return _OPEN

    def _from_node(self, scope: Scope, node: UiNode, slot: int, wanted: str) -> _Step | Resolved:
        kind = kind_of(node, self._table)
        place = f"{node.type} {scope.id_of(node.id)}"
        if kind is NodeKind.REAL:
            return _from_real(scope, node, slot)
        if kind is NodeKind.MUTED:
            return Lost(f"{place} is muted", Reason.MUTED)
        if kind is NodeKind.PRIMITIVE:
            value = first_value(node)
            return Lost(f"{place} holds no value") if value is None else Constant(value)
        if kind is NodeKind.GET:
            return _from_get(scope, node, place)
        if kind is NodeKind.BYPASSED:
            key = (scope.index, node.id)
            if key not in self._bypasses:
                self._bypasses[key] = Bypass(node)
            entry = self._bypasses[key].input(slot, wanted)
            if entry is None:
                return Lost(
                    f"{place} is bypassed and no input of it gives {wanted}", Reason.BYPASSED
                )
        elif kind in {NodeKind.REROUTE, NodeKind.SET}:
            entry = node.inputs[0] if node.inputs else None
        else:
            return Lost(f"{place} gives nothing")
        if entry is None or entry.link is None:
            return Lost(f"nothing is connected to {place}")
        return scope, entry.link


def _port_of(scope: Scope, link_id: str) -> int | None:
    """The number of the subgraph input that a link comes from."""
    link = scope.body.links.get(link_id)
    at_port = link is not None and link.origin == INPUT_NODE and scope.parent is not None
    return link.origin_slot if link is not None and at_port else None


def _from_get(scope: Scope, node: UiNode, place: str) -> _Step | Resolved:
    """The input of the Set node of the same name, here or in an outer scope."""
    name = first_value(node)
    at: Scope | None = scope
    while at is not None:
        setter = at.setters.get(name) if isinstance(name, str) else None
        if setter is not None and setter.mode == MODE_MUTED:
            return Lost(f"SetNode {at.id_of(setter.id)} is muted", Reason.MUTED)
        if setter is not None:
            link = setter.inputs[0].link if setter.inputs else None
            if link is None:
                return Lost(f"nothing is connected to SetNode {at.id_of(setter.id)}")
            return at, link
        at = at.parent
    return Lost(f"{place} reads {name!r}, which no SetNode sets", Reason.MISSING_LINK)


def _from_real(scope: Scope, node: UiNode, slot: int) -> _Step | Resolved:
    child = scope.children.get(node.id)
    if child is not None:
        link = _output_link(child, node, slot)
        if link is None:
            why = f"nothing is connected to output {slot} inside subgraph {scope.id_of(node.id)}"
            return Lost(why)
        return child, link
    if node.id in scope.unexpanded:
        return Lost(f"subgraph {scope.id_of(node.id)} could not be expanded", Reason.SUBGRAPH)
    if slot < 0:
        return Lost(f"it names no output of node {scope.id_of(node.id)}", Reason.MISSING_LINK)
    return Source(scope.id_of(node.id), slot)


def _output_link(child: Scope, node: UiNode, slot: int) -> str | None:
    """The inner link of an instance's output: by name where the instance's order differs."""
    if child.definition is None or child.inside is None:
        return None
    ports = child.definition.outputs
    name = node.outputs[slot].name if 0 <= slot < len(node.outputs) else None
    if name is not None and not (slot < len(ports) and ports[slot].name == name):
        slot = child.inside.output_slots.get(name, slot)
    return child.inside.outputs.get(slot)
