"""Random graphs: validation never crashes, order respects edges, fingerprints are stable."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from inline_core.errors import InvalidGraph
from inline_core.graph.document import graph_hash, read_graph
from inline_core.graph.fingerprint import fingerprints
from inline_core.graph.order import cycles
from inline_core.graph.validate import check_graph
from tests.fault_nodes import specs_with_faults

SPECS = specs_with_faults()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(JSON, st.text(max_size=3))
def test_any_json_is_answered_with_problems(document: Any, target: str) -> None:
    try:
        check_graph(document, (target,), SPECS, lambda _: [])
    except InvalidGraph as error:
        assert error.problems
    graph_hash(document, (target,))


@given(st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=30))
@settings(max_examples=200)
def test_dags_are_ordered_and_cycles_found(wires: list[tuple[int, int]]) -> None:
    nodes: list[dict[str, Any]] = [
        {"id": f"n{i}", "type": "test/concat", "inputs": {}} for i in range(15)
    ]
    for source, target in wires:
        nodes[target]["inputs"]["first"] = {"from": f"n{source}", "output": "text"}
    parents = {node["id"]: node["inputs"]["first"]["from"] for node in nodes if node["inputs"]}
    looping = {start for start in parents if _loops(start, parents)}
    document = {"schemaVersion": 1, "nodes": nodes}
    graph, _ = read_graph(document)
    assert {node_id for group in cycles(graph) for node_id in group} == looping
    if looping:
        return
    checked = check_graph(document, ("n0",), SPECS, lambda _: [])
    position = {node_id: index for index, node_id in enumerate(checked.order)}
    for node_id in checked.order:
        if node_id in parents:
            assert position[parents[node_id]] < position[node_id]
    keys = fingerprints(checked.graph, checked.order, SPECS, checked.params, lambda *_: {})
    assert len(set(keys.values())) <= len(checked.order)


def _loops(start: str, parents: dict[str, str]) -> bool:
    """Whether following the wires from a node comes back to it."""
    at: str | None = parents.get(start)
    for _ in range(len(parents) + 1):
        if at == start:
            return True
        at = parents.get(at) if at is not None else None
    return False
