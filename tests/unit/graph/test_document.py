"""Reading graph documents, and their identity."""

from __future__ import annotations

from inline_core.graph.document import graph_hash, read_graph


def test_identity_ignores_key_order_and_edge_spelling() -> None:
    one = {
        "schemaVersion": 1,
        "nodes": [{"id": "a", "type": "t", "inputs": {"x": {"from": "b", "output": "o"}}}],
    }
    two = {
        "nodes": [
            {"inputs": {"x": [{"output": "o", "from": "b"}]}, "type": "t", "id": "a", "z": 1}
        ],
        "schemaVersion": 1,
    }
    assert graph_hash(one, ("a",)) == graph_hash(two, ("a",))
    assert graph_hash(one, ("a",)) != graph_hash(one, ("b",))


def test_all_shape_problems_are_reported() -> None:
    document = {
        "schemaVersion": 3,
        "nodes": [1, {"id": "a"}, {"id": "b", "type": "t", "params": 1, "inputs": 2}],
    }
    _, problems = read_graph(document)
    assert [problem.code for problem in problems] == [
        "unsupported_schema_version",
        "node_not_object",
        "node_without_id_or_type",
        "params_not_object",
        "inputs_not_object",
    ]
