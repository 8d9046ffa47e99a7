"""What of a run must really be executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from inline_core.graph.document import read_graph
from inline_core.graph.fingerprint import ContentStamps, fingerprints
from inline_core.graph.model import Graph
from inline_core.graph.ports import PortKind
from inline_core.graph.spec import NodeSpec
from inline_core.runs.records import RunBody
from inline_core.takes.take import Take

_KINDS_OF_TAKES: Final = (PortKind.IMAGE, PortKind.VIDEO, PortKind.AUDIO)

CachedTakes = Callable[[list[str]], Mapping[str, tuple[Take, ...]]]


@dataclass(frozen=True, slots=True)
class Plan:
    """Nodes in execution order, and how each gets its result.

    `reused` holds the takes of nodes that were made before; `needed` are the nodes whose outputs
    somebody reads; a node that is neither reused nor needed is skipped, since only reused nodes
    would have read it.  `inner` nodes make pictures that are only selected from, or are marked not
    to be kept: no takes.  Of `shown` nodes the text they give is what is wanted.
    """

    graph: Graph
    order: tuple[str, ...]
    specs: Mapping[str, NodeSpec]
    params: Mapping[str, Mapping[str, Any]]
    fingerprints: Mapping[str, str]
    reused: Mapping[str, tuple[Take, ...]]
    needed: frozenset[str]
    readers: Mapping[str, int]
    inner: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()

    def makes_takes(self, node_id: str) -> bool:
        """Whether what this node makes is stored as takes."""
        kind = self.specs[self.graph.by_id[node_id].type].output_kind
        return kind in {"image", "video", "audio"} and node_id not in self.inner


def make_plan(
    body: RunBody,
    specs: Mapping[str, NodeSpec],
    stamps: ContentStamps,
    cached_takes: CachedTakes,
) -> Plan:
    """Plan a run; linear in the graph.  `cached_takes` looks fingerprints up in the database."""
    graph, _ = read_graph(body.graph)
    keys = fingerprints(graph, body.order, specs, body.params, stamps)
    reused: dict[str, tuple[Take, ...]] = {}
    if not body.force:
        asked = _asked_for_more(graph, body.order, specs)
        makers = [
            node_id
            for node_id in body.order
            if _makes_takes(specs[graph.by_id[node_id].type]) and node_id not in asked
        ]
        found = cached_takes([keys[node_id] for node_id in makers])
        reused = {node_id: found[keys[node_id]] for node_id in makers if keys[node_id] in found}
    needed, readers = _needed(graph, body, reused)
    inner = _inner(graph, body, specs)
    shown = frozenset(
        node_id for node_id in body.targets if _gives_text(specs[graph.by_id[node_id].type])
    )
    return Plan(graph, body.order, specs, body.params, keys, reused, needed, readers, inner, shown)


def _gives_text(spec: NodeSpec) -> bool:
    return bool(spec.outputs) and all(port.kind is PortKind.TEXT for port in spec.outputs)


def _makes_takes(spec: NodeSpec) -> bool:
    return spec.output_kind in {"image", "video", "audio"} and spec.cacheable


def _asked_for_more(
    graph: Graph, order: tuple[str, ...], specs: Mapping[str, NodeSpec]
) -> frozenset[str]:
    """Nodes of whose outputs one is read that no take holds (the mask beside a picture)."""
    edges = (
        edge
        for node_id in order
        for wired in graph.by_id[node_id].inputs.values()
        for edge in wired
    )
    found = set()
    for edge in edges:
        port = specs[graph.by_id[edge.source].type].output(edge.output)
        if port is not None and port.kind not in _KINDS_OF_TAKES:
            found.add(edge.source)
    return frozenset(found)


def _needed(
    graph: Graph, body: RunBody, reused: Mapping[str, tuple[Take, ...]]
) -> tuple[frozenset[str], Mapping[str, int]]:
    """Walk from the targets up; stop at nodes whose takes exist already."""
    needed = set(body.targets)
    readers: dict[str, int] = {}
    for node_id in reversed(body.order):
        if node_id not in needed or node_id in reused:
            continue
        for edges in graph.by_id[node_id].inputs.values():
            for edge in edges:
                needed.add(edge.source)
                readers[edge.source] = readers.get(edge.source, 0) + 1
    return frozenset(needed), readers


def _inner(graph: Graph, body: RunBody, specs: Mapping[str, NodeSpec]) -> frozenset[str]:
    """Nodes all of whose readers select from what they make, or not to be kept; never a target."""
    selected = {node_id for node_id in body.order if not graph.by_id[node_id].keep}
    used: set[str] = set()
    for node_id in body.order:
        node = graph.by_id[node_id]
        readers = selected if specs[node.type].selects else used
        readers.update(edge.source for edges in node.inputs.values() for edge in edges)
    shown = {node_id for node_id in used if graph.by_id[node_id].keep} | set(body.targets)
    return frozenset(selected - shown)
