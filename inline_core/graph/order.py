"""Walks over a graph, all linear in nodes plus edges and none recursive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter

from inline_core.graph.model import Graph


def sources_of(graph: Graph, node_id: str) -> Iterator[str]:
    """Ids of the existing nodes wired into a node, in port order, repeats included."""
    for edges in graph.by_id[node_id].inputs.values():
        for edge in edges:
            if edge.source in graph.by_id:
                yield edge.source


def closure(graph: Graph, targets: Iterable[str]) -> set[str]:
    """The targets and everything upstream of them."""
    found: set[str] = set()
    waiting = [target for target in targets if target in graph.by_id]
    while waiting:
        node_id = waiting.pop()
        if node_id not in found:
            found.add(node_id)
            waiting.extend(source for source in sources_of(graph, node_id) if source not in found)
    return found


def execution_order(graph: Graph, targets: Iterable[str]) -> list[str]:
    """The upstream closure of the targets, each node after all its sources.

    Ties go by the order in the document, so equal documents run in equal order.
    Raises: graphlib.CycleError, which a validated graph never does.
    """
    wanted = closure(graph, targets)
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for node in graph.nodes:
        if node.id in wanted:
            sorter.add(node.id, *sources_of(graph, node.id))
    return list(sorter.static_order())


def cycles(graph: Graph) -> list[list[str]]:
    """Every cyclic group of nodes (strongly connected, or a node wired into itself).

    Tarjan's algorithm (SIAM J. Comput. 1(2), 1972) with an explicit stack.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on_stack: set[str] = set()
    stack: list[str] = []
    groups: list[list[str]] = []
    for root in graph.by_id:
        if root in index:
            continue
        work: list[tuple[str, Iterator[str]]] = [(root, sources_of(graph, root))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node_id, sources = work[-1]
            source = next(sources, None)
            if source is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node_id])
                if low[node_id] == index[node_id]:
                    _pop_group(graph, node_id, stack, on_stack, groups)
            elif source not in index:
                index[source] = low[source] = len(index)
                stack.append(source)
                on_stack.add(source)
                work.append((source, sources_of(graph, source)))
            elif source in on_stack:
                low[node_id] = min(low[node_id], index[source])
    return groups


def _pop_group(
    graph: Graph, root: str, stack: list[str], on_stack: set[str], groups: list[list[str]]
) -> None:
    group: list[str] = []
    while True:
        member = stack.pop()
        on_stack.discard(member)
        group.append(member)
        if member == root:
            break
    if len(group) > 1 or root in sources_of(graph, root):
        groups.append(group)
