"""Recipes: a graph that makes one picture again, every param settled, and only that picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inline_core.graph.document import SCHEMA_VERSION
from inline_core.graph.model import Graph
from inline_core.graph.order import closure

PICK: Final = "image/from-batch"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a picture stands: number `index` of `count` of an output port of its node.

    `siblings` counts the pictures of all ports of the node, itself included.
    """

    port: str
    index: int
    count: int
    siblings: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """A graph document and the node whose only picture is the one that is wanted."""

    nodes: tuple[Mapping[str, Any], ...]
    target: str

    @property
    def graph(self) -> dict[str, Any]:
        """The graph document."""
        return {"schemaVersion": SCHEMA_VERSION, "nodes": list(self.nodes)}


def places(ports: Sequence[str]) -> list[Place]:
    """The place of each picture of a node; `ports` names the port of each, in order."""
    seen: dict[str, int] = {}
    found: list[Place] = []
    for port in ports:
        index = seen.get(port, 0)
        seen[port] = index + 1
        found.append(Place(port, index, ports.count(port), len(ports)))
    return found


def settled(graph: Graph, params: Mapping[str, Mapping[str, Any]], target: str) -> Recipe:
    """The closure of `target` with the effective params of each node (seeds resolved)."""
    wanted = closure(graph, [target])
    nodes = tuple(
        {
            "id": node.id,
            "type": node.type,
            "params": {key: value for key, value in params[node.id].items() if value is not None},
            "inputs": {
                port: [{"from": edge.source, "output": edge.output} for edge in edges]
                for port, edges in node.inputs.items()
            },
        }
        for node in graph.nodes
        if node.id in wanted
    )
    return Recipe(nodes, target)


def only(recipe: Recipe, place: Place) -> Recipe:
    """The recipe of one picture: where its node makes several, a node that picks it is added."""
    if place.siblings <= 1:
        return recipe
    ids = {node["id"] for node in recipe.nodes}
    name = f"{recipe.target}-{place.index + 1}"
    while name in ids:
        name += "-"
    pick = {
        "id": name,
        "type": PICK,
        "params": {"index": place.index, "length": 1, "clip": False},
        "inputs": {"image": [{"from": recipe.target, "output": place.port}]},
    }
    return Recipe((*recipe.nodes, pick), name)
