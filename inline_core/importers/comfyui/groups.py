"""Old group nodes as subgraph definitions, so that one expansion serves both.

A group's body has members and links by index.  Its outer inputs are the members' free inputs in
order, named by the input alone or as `MEMBER INPUT`; its widget values are those of the members one
after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from inline_core.importers.comfyui.document import (
    INPUT_NODE,
    OUTPUT_NODE,
    Body,
    Definition,
    InputSlot,
    Link,
    Port,
    UiNode,
    read_node,
)
from inline_core.importers.comfyui.report import Reason, Report

_Place = tuple[int, int]


def group_definition(
    instance: UiNode, name: str, group: Mapping[str, Any], place: str, report: Report
) -> Definition:
    """The definition of one group node, with the instance's values in its members.

    Member ids are their indexes.  `place` is the flattened id of the instance, for the report.
    """
    members = _members(group, place, report)
    inner = list(_inner_links(group, len(members)))
    targets = {link[1] for link in inner}
    ports = dict(_ports(instance, members, targets))
    links: dict[str, Link] = {}
    slots = [list(member.inputs) for member in members]
    for number, (source, target) in enumerate(inner):
        _connect(links, slots, f"i{number}", Link(str(source[0]), source[1], "", 0), target)
    for number, target in enumerate(ports.values()):
        _connect(links, slots, f"p{number}", Link(INPUT_NODE, number, "", 0), target)
    outputs = []
    for number, (index, slot) in enumerate(_outputs(group, members, {link[0] for link in inner})):
        links[f"o{number}"] = Link(str(index), slot, OUTPUT_NODE, number)
        port = members[index].outputs[slot]
        outputs.append(Port(port.name, port.type, (f"o{number}",)))
    values = _split(instance, members, place, report)
    nodes = {
        member.id: replace(member, inputs=tuple(slots[index]), values=values[index])
        for index, member in enumerate(members)
    }
    inputs = tuple(Port(port, members[i].inputs[s].type) for port, (i, s) in ports.items())
    return Definition(f"workflow>{name}", name, inputs, tuple(outputs), Body(nodes, links))


def _members(group: Mapping[str, Any], place: str, report: Report) -> list[UiNode]:
    entries = group.get("nodes")
    members: list[UiNode] = []
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        node = read_node(entry, str(index))
        if node is None:
            message = f"member {index} of the group is no node; an empty note stands in for it"
            report.error(Reason.MALFORMED, message, f"{place}:{index}")
            node = UiNode(str(index), "Note")
        members.append(node)
    return members


def _number(value: Any) -> int:
    return value if isinstance(value, int) else -1


def _inner_links(group: Mapping[str, Any], count: int) -> Iterator[tuple[_Place, _Place]]:
    links = group.get("links")
    for entry in links if isinstance(links, list) else ():
        match entry:
            case [int(a), int(b), int(c), int(d), *_] if b >= 0 and d >= 0:
                if 0 <= a < count and 0 <= c < count:
                    yield (a, b), (c, d)


def _connect(
    links: dict[str, Link], slots: list[list[InputSlot]], link_id: str, origin: Link, to: _Place
) -> None:
    index, slot = to
    if slot < len(slots[index]):
        links[link_id] = replace(origin, target=str(index), target_slot=slot)
        slots[index][slot] = replace(slots[index][slot], link=link_id)


def _ports(
    instance: UiNode, members: Sequence[UiNode], linked: set[_Place]
) -> Iterator[tuple[str, _Place]]:
    """Outer input name -> the member input it stands for: the first free one that fits the name."""
    free: dict[str, list[_Place]] = {}
    for index, member in enumerate(members):
        for slot, entry in enumerate(member.inputs):
            if (index, slot) not in linked:
                free.setdefault(entry.name, []).append((index, slot))
    for outer in instance.inputs:
        name = outer.name if outer.name in free else None
        owner = ""
        if name is None:
            words = outer.name.split(" ")
            ends = (" ".join(words[start:]) for start in range(1, len(words)))
            name = next((end for end in ends if end in free), None)
            owner = outer.name[: -len(name) - 1] if name else ""
        places = free.get(name, []) if name else []
        fitting = (place for place in places if not owner or owner in _names(members[place[0]]))
        place = next(fitting, places[0] if places else None)
        if place is not None:
            places.remove(place)
            yield outer.name, place


def _names(member: UiNode) -> tuple[str, ...]:
    return member.type, member.title or member.type


def _outputs(
    group: Mapping[str, Any], members: Sequence[UiNode], used: set[_Place]
) -> Iterator[_Place]:
    """The members' outputs that show outside: unused inside, or listed as external."""
    external = group.get("external")
    listed = {
        (_number(entry[0]), _number(entry[1]))
        for entry in (external if isinstance(external, list) else ())
        if isinstance(entry, list) and len(entry) > 1
    }
    for index, member in enumerate(members):
        for slot in range(len(member.outputs)):
            if (index, slot) in listed or (index, slot) not in used:
                yield index, slot


def _split(
    instance: UiNode, members: Sequence[UiNode], place: str, report: Report
) -> list[list[Any] | dict[str, Any]]:
    """The instance's values cut into those of the members; their own if the count is off."""
    own = [member.values for member in members]
    values = instance.values
    if not values:
        return own
    if not isinstance(values, list) or len(values) != sum(len(part) for part in own):
        message = "the values of the group node do not fit its members, whose own are taken"
        report.warn(Reason.VALUE_COUNT, message, place, instance.type)
        return own
    parts: list[list[Any] | dict[str, Any]] = []
    start = 0
    for part in own:
        parts.append(values[start : start + len(part)])
        start += len(part)
    return parts
