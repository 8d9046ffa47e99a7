"""Instances of subgraphs: each gets a scope of its own, with the values promoted to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from inline_core.errors import InvalidRequest
from inline_core.importers.comfyui.document import (
    INPUT_NODE,
    OUTPUT_NODE,
    Body,
    Definition,
    InputSlot,
    Port,
    UiNode,
    Workflow,
)
from inline_core.importers.comfyui.groups import group_definition
from inline_core.importers.comfyui.kinds import NodeKind, group_name, is_uuid, kind_of
from inline_core.importers.comfyui.node_table import NodeTable
from inline_core.importers.comfyui.report import Reason, Report

MAX_NODES: Final = 100_000
"""Most nodes of a workflow with all its subgraphs expanded."""
MAX_DEPTH: Final = 64
"""Deepest nesting of subgraphs."""


@dataclass(frozen=True, slots=True)
class Inside:
    """How a definition's ports are wired inside: targets of each input, link of each output."""

    targets: Mapping[int, Sequence[tuple[UiNode, InputSlot]]]
    outputs: Mapping[int, str]
    input_slots: Mapping[str, int]
    output_slots: Mapping[str, int]


@dataclass(slots=True, eq=False)
class Scope:
    """The root, or one instance of a subgraph; `prefix` starts the ids of its nodes."""

    index: int
    prefix: str
    body: Body
    parent: Scope | None = None
    instance: UiNode | None = None
    definition: Definition | None = None
    inside: Inside | None = None
    depth: int = 0
    children: dict[str, Scope] = field(default_factory=dict)
    unexpanded: set[str] = field(default_factory=set)
    """Ids of instances without a usable definition."""
    port_values: dict[str, Any] = field(default_factory=dict)
    """Input name of the definition -> the value that the instance holds for it."""
    overrides: dict[tuple[str, str], Any] = field(default_factory=dict)
    """(inner node id, widget name) -> the value that the instance holds for it."""
    setters: dict[str, UiNode] = field(default_factory=dict)
    links_by_input: dict[str, str | None] = field(default_factory=dict)
    """Input name of the instance -> the outer link."""

    def id_of(self, node_id: str) -> str:
        """The flattened id of a node in this scope."""
        return self.prefix + node_id


def nodes_in_order(root: Scope) -> Iterator[tuple[Scope, UiNode]]:
    """All nodes of all scopes, the inner ones of an instance right after it."""
    stack = [(root, iter(root.body.nodes.values()))]
    while stack:
        scope, nodes = stack[-1]
        node = next(nodes, None)
        if node is None:
            stack.pop()
            continue
        yield scope, node
        child = scope.children.get(node.id)
        if child is not None:
            stack.append((child, iter(child.body.nodes.values())))


class Expansion:
    """Makes the scopes of a workflow.  One is used for one workflow, by one thread."""

    def __init__(self, workflow: Workflow, table: NodeTable, report: Report) -> None:
        self._workflow = workflow
        self._table = table
        self._report = report
        self._insides: dict[int, Inside] = {}
        self._nodes = 0
        self._scopes = 0

    def expanded(self) -> Scope:
        """The root scope with all instances below it.  Raises: InvalidRequest over the limits."""
        root = self._scope("", self._workflow.body)
        waiting = [root]
        while waiting:
            scope = waiting.pop()
            for node in scope.body.nodes.values():
                child = self._child(scope, node)
                if child is not None:
                    scope.children[node.id] = child
                    waiting.append(child)
        return root

    def inside(self, definition: Definition) -> Inside:
        """The wiring of a definition, found once."""
        key = id(definition)
        if key not in self._insides:
            self._insides[key] = _inside(definition)
        return self._insides[key]

    def _scope(self, prefix: str, body: Body) -> Scope:
        self._nodes += len(body.nodes)
        if self._nodes > MAX_NODES:
            message = (
                f"The workflow has more than {MAX_NODES} nodes once its subgraphs are expanded; "
                "export the part that is needed."
            )
            raise InvalidRequest(message)
        scope = Scope(self._scopes, prefix, body)
        self._scopes += 1
        for node in body.nodes.values():
            if node.type == "SetNode":
                name = first_value(node)
                if isinstance(name, str):
                    scope.setters.setdefault(name, node)
        return scope

    def _child(self, parent: Scope, node: UiNode) -> Scope | None:
        if kind_of(node, self._table) is not NodeKind.REAL:
            return None
        definition = self._definition(parent, node)
        if definition is None:
            return None
        scope = self._scope(f"{parent.id_of(node.id)}:", definition.body)
        scope.parent, scope.instance, scope.definition = parent, node, definition
        scope.depth = parent.depth + 1
        scope.inside = self.inside(definition)
        for slot in node.inputs:
            if slot.name in scope.inside.input_slots:
                scope.links_by_input.setdefault(slot.name, slot.link)
        return scope

    def _definition(self, parent: Scope, node: UiNode) -> Definition | None:
        """The definition of an instance; None for other nodes, and for faults (reported)."""
        place = parent.id_of(node.id)
        group = group_name(node.type)
        definition = self._workflow.definitions.get(node.type)
        body = self._workflow.groups.get(group) if group is not None else None
        if definition is None and body is None:
            if group is None and not is_uuid(node.type):
                return None
            what = f"group {group!r}" if group is not None else "subgraph"
            message = f"the file has no definition of this {what}: the node is left out"
            self._report.error(Reason.MISSING_DEFINITION, message, place, node.type)
        elif parent.depth >= MAX_DEPTH or _holds(parent, node.type, group):
            why = "it contains itself" if parent.depth < MAX_DEPTH else f"over {MAX_DEPTH} levels"
            message = f"this subgraph cannot be expanded ({why}): the node is left out"
            self._report.error(Reason.RECURSION, message, place, node.type)
        elif definition is not None:
            return definition
        elif group is not None and body is not None:
            return group_definition(node, group, body, place, self._report)
        parent.unexpanded.add(node.id)
        return None


def _holds(scope: Scope | None, node_type: str, group: str | None) -> bool:
    """Whether a scope lies inside a subgraph or group of this type."""
    wanted = f"workflow>{group}" if group is not None else node_type
    while scope is not None:
        if scope.definition is not None and scope.definition.id == wanted:
            return True
        scope = scope.parent
    return False


def first_value(node: UiNode) -> Any:
    """The first widget value of a node; None if it has none."""
    values = node.values if isinstance(node.values, list) else list(node.values.values())
    return values[0] if values else None


def _inside(definition: Definition) -> Inside:
    body = definition.body
    found: dict[int, list[tuple[int, UiNode, InputSlot]]] = {}
    ranks = [{link: rank for rank, link in enumerate(port.links)} for port in definition.inputs]
    for node in body.nodes.values():
        for slot in node.inputs:
            link = body.links.get(slot.link) if slot.link is not None else None
            if link is not None and slot.link is not None and link.origin == INPUT_NODE:
                number = link.origin_slot
                known = ranks[number] if 0 <= number < len(ranks) else {}
                rank = known.get(slot.link, len(known))
                found.setdefault(number, []).append((rank, node, slot))
    targets = {
        number: [(node, slot) for _, node, slot in sorted(entries, key=lambda entry: entry[0])]
        for number, entries in found.items()
    }
    outputs: dict[int, str] = {}
    for link_id, link in body.links.items():
        if link.target == OUTPUT_NODE:
            outputs.setdefault(link.target_slot, link_id)
    for number, port in enumerate(definition.outputs):
        known_links = [link_id for link_id in port.links if link_id in body.links]
        if number not in outputs and known_links:
            outputs[number] = known_links[0]
    return Inside(targets, outputs, _numbers(definition.inputs), _numbers(definition.outputs))


def _numbers(ports: Sequence[Port]) -> dict[str, int]:
    """Name -> number, the first one of each name."""
    found: dict[str, int] = {}
    for number, port in enumerate(ports):
        found.setdefault(port.name, number)
    return found
