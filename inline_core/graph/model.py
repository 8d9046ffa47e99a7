"""The graph as immutable data: nodes, edges, params."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Edge:
    """A wire from output port `output` of node `source`."""

    source: str
    output: str


@dataclass(frozen=True, slots=True)
class Node:
    """One node as the client wrote it; edges of a port are in the client's order.

    What a node makes is kept as takes, unless `keep` is false and it is no target.
    """

    id: str
    type: str
    params: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, tuple[Edge, ...]] = field(default_factory=dict)
    keep: bool = True


@dataclass(frozen=True, slots=True)
class Graph:
    """A directed acyclic graph of nodes with unique ids."""

    nodes: tuple[Node, ...]
    by_id: Mapping[str, Node]

    @classmethod
    def of(cls, nodes: tuple[Node, ...]) -> Graph:
        """Build a graph; of nodes with equal ids the first is found by id."""
        by_id: dict[str, Node] = {}
        for node in nodes:
            by_id.setdefault(node.id, node)
        return cls(nodes, by_id)
