"""The model of a saved ComfyUI workflow: nodes, links in both spellings, subgraph definitions.

Reading is lenient: what is no node, link or slot is reported and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from inline_core.importers.comfyui.report import Reason, Report

MODE_MUTED: Final = 2
MODE_BYPASSED: Final = 4
INPUT_NODE: Final = "-10"
OUTPUT_NODE: Final = "-20"

_MIN_LINK: Final = 5


@dataclass(frozen=True, slots=True)
class InputSlot:
    """An input of a node; `link` is the id of the link that feeds it, `widget` its widget."""

    name: str
    type: str
    link: str | None
    widget: str | None = None


@dataclass(frozen=True, slots=True)
class OutputSlot:
    """An output of a node."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class UiNode:
    """A node as saved; `values` is `widgets_values`, `named` is `widgets_values_named`."""

    id: str
    type: str
    mode: int = 0
    inputs: tuple[InputSlot, ...] = ()
    outputs: tuple[OutputSlot, ...] = ()
    values: list[Any] | dict[str, Any] = field(default_factory=list)
    named: Mapping[str, Any] | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A connection; ids are strings, `-10` and `-20` are the ports of a subgraph."""

    origin: str
    origin_slot: int
    target: str
    target_slot: int


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a subgraph definition, with the inner links at it."""

    name: str
    type: str
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Body:
    """Nodes and links of the root or of one definition."""

    nodes: Mapping[str, UiNode]
    links: Mapping[str, Link]


@dataclass(frozen=True, slots=True)
class Definition:
    """A subgraph; instances are nodes whose type is `id`."""

    id: str
    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    body: Body


@dataclass(frozen=True, slots=True)
class Workflow:
    """A whole saved workflow; `groups` are the bodies of old group nodes, by name."""

    body: Body
    definitions: Mapping[str, Definition]
    groups: Mapping[str, Mapping[str, Any]]
    everywhere: tuple[Link, ...] = ()
    """Implied links that the pack "Use Everywhere" recorded."""


def read_document(document: Mapping[str, Any], report: Report) -> Workflow:
    """The model of a workflow in the editor's format 0.4 or 1; faults go into the report."""
    definitions: dict[str, Definition] = {}
    waiting = _definitions_in(document)
    while waiting:
        entry = waiting.pop()
        definition = _definition(entry, report)
        if definition.id not in definitions:
            definitions[definition.id] = definition
        waiting.extend(_definitions_in(entry))
    extra = _object(document.get("extra"))
    groups = {
        name: group
        for name, group in _object(extra.get("groupNodes")).items()
        if isinstance(group, Mapping)
    }
    everywhere = (_everywhere(entry) for entry in _items(extra.get("ue_links")))
    body = _body(document, "", report)
    implied = tuple(link for link in everywhere if link is not None)
    return Workflow(body, definitions, groups, implied)


def read_node(entry: Any, node_id: str) -> UiNode | None:
    """A node; None if the entry is no object with a type."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("type"), str):
        return None
    values = entry.get("widgets_values")
    named = entry.get("widgets_values_named")
    mode, title = entry.get("mode"), entry.get("title")
    return UiNode(
        id=node_id,
        type=entry["type"],
        mode=mode if isinstance(mode, int) else 0,
        inputs=tuple(_input(slot) for slot in _items(entry.get("inputs"))),
        outputs=tuple(_output(slot) for slot in _items(entry.get("outputs"))),
        values=values if isinstance(values, list | dict) else [],
        named=named if isinstance(named, Mapping) else None,
        properties=_object(entry.get("properties")),
        title=title if isinstance(title, str) and title else None,
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _id(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value)


def _definitions_in(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = _items(_object(document.get("definitions")).get("subgraphs"))
    return [entry for entry in reversed([*entries]) if isinstance(entry, Mapping)]


def _definition(entry: Mapping[str, Any], report: Report) -> Definition:
    name = str(entry.get("name") or entry.get("id"))
    return Definition(
        id=str(entry.get("id")),
        name=name,
        inputs=tuple(_port(port) for port in _items(entry.get("inputs"))),
        outputs=tuple(_port(port) for port in _items(entry.get("outputs"))),
        body=_body(entry, f" of subgraph {name!r}", report),
    )


def _port(entry: Any) -> Port:
    port = _object(entry)
    links = tuple(str(link) for link in _items(port.get("linkIds")))
    return Port(str(port.get("name", "")), str(port.get("type", "*")), links)


def _body(document: Mapping[str, Any], where: str, report: Report) -> Body:
    nodes: dict[str, UiNode] = {}
    for index, entry in enumerate(_items(document.get("nodes"))):
        node_id = _id(entry.get("id")) if isinstance(entry, Mapping) else None
        node = read_node(entry, node_id) if node_id is not None else None
        if node is None:
            message = f"entry {index} of the nodes{where} is no node (id and type are needed)"
            report.error(Reason.MALFORMED, message, node_id)
        elif node.id in nodes:
            message = f"a second node{where} with this id is left out"
            report.error(Reason.DUPLICATE_ID, message, node.id, node.type)
        else:
            nodes[node.id] = node
    return Body(nodes, dict(_links(_items(document.get("links")), where, report)))


def _links(entries: Iterable[Any], where: str, report: Report) -> Iterator[tuple[str, Link]]:
    for index, entry in enumerate(entries):
        parts: list[Any] = entry if isinstance(entry, list) else []
        if isinstance(entry, Mapping):
            names = ("id", "origin_id", "origin_slot", "target_id", "target_slot")
            parts = [entry.get(name) for name in names]
        if entry is None:
            continue
        link_id = _id(parts[0]) if len(parts) >= _MIN_LINK else None
        link = _link(parts[1:5]) if link_id is not None else None
        if link_id is None or link is None:
            message = f"entry {index} of the links{where} is no link and is left out"
            report.warn(Reason.MALFORMED, message)
        else:
            yield link_id, link


def _link(parts: list[Any]) -> Link | None:
    origin, target = _id(parts[0]), _id(parts[2])
    if origin is None or target is None:
        return None
    return Link(origin, _slot(parts[1]), target, _slot(parts[3]))


def _slot(value: Any) -> int:
    """A slot number; some files hold them as texts, unknown ones point at no slot."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return -1


def _input(entry: Any) -> InputSlot:
    slot = _object(entry)
    widget = _object(slot.get("widget")).get("name")
    return InputSlot(
        name=str(slot.get("name", "")),
        type=_type(slot.get("type")),
        link=_id(slot.get("link")),
        widget=str(widget) if widget is not None else None,
    )


def _output(entry: Any) -> OutputSlot:
    slot = _object(entry)
    return OutputSlot(str(slot.get("name", "")), _type(slot.get("type")))


def _type(value: Any) -> str:
    """A type name; combos may be saved as their list of options, events as -1."""
    if isinstance(value, list):
        return "COMBO"
    return value if isinstance(value, str) and value else "*"


def _everywhere(entry: Any) -> Link | None:
    facts = _object(entry)
    ends = [facts.get(name) for name in ("upstream", "upstream_slot", "downstream")]
    return _link([*ends, facts.get("downstream_slot")])
