"""Reading the JSON of a graph, schema version 1, and writing it back.

The reader collects every shape problem it meets, and gives as much of the graph as it understood,
so that the checks that follow can report their problems in the same reply.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from inline_core.errors import GraphProblem
from inline_core.graph.model import Edge, Graph, Node

SCHEMA_VERSION = 1


def read_graph(document: object) -> tuple[Graph, list[GraphProblem]]:
    """Read a decoded JSON document; the problems are in document order."""
    problems: list[GraphProblem] = []
    empty = Graph.of(())
    if not isinstance(document, Mapping):
        return empty, [GraphProblem("graph_not_object", "Graph must be an object.")]
    if _is_comfyui_workflow(document):
        message = (
            "This is a ComfyUI workflow, not an Inline graph (which has 'schemaVersion': 1 and a "
            "list of 'nodes'): POST it to /v1/import/comfyui, and its reply's 'graph' and "
            "'targets' here."
        )
        return empty, [GraphProblem("comfyui_workflow", message)]
    version = document.get("schemaVersion")
    if version != SCHEMA_VERSION or isinstance(version, float):
        message = f"Unsupported graph schemaVersion: {version!r}."
        problems.append(GraphProblem("unsupported_schema_version", message))
    rows = document.get("nodes")
    if not isinstance(rows, list):
        problems.append(GraphProblem("nodes_not_list", "Graph 'nodes' must be a list."))
        return empty, problems
    nodes = [node for row in rows if (node := _read_node(row, problems)) is not None]
    problems.extend(_duplicates(nodes))
    return Graph.of(tuple(nodes)), problems


def _is_comfyui_workflow(document: Mapping[str, Any]) -> bool:
    """Tell the two ComfyUI formats: UI (`links`, `last_node_id`) and API (`class_type`)."""
    if "schemaVersion" in document:
        return False
    if "last_node_id" in document or "links" in document:
        return True
    values = list(document.values())
    return bool(values) and all(isinstance(v, Mapping) and "class_type" in v for v in values)


def _read_node(row: object, problems: list[GraphProblem]) -> Node | None:
    if not isinstance(row, Mapping):
        problems.append(GraphProblem("node_not_object", "Each node must be an object."))
        return None
    node_id, node_type = row.get("id"), row.get("type")
    if not (isinstance(node_id, str) and isinstance(node_type, str) and node_id):
        message = "Each node needs a string 'id' and 'type'."
        known = node_id if isinstance(node_id, str) else None
        problems.append(GraphProblem("node_without_id_or_type", message, node_id=known))
        return None
    params = row.get("params")
    if params is not None and not isinstance(params, Mapping):
        message = "Node 'params' must be an object."
        problems.append(GraphProblem("params_not_object", message, node_id=node_id))
        params = None
    inputs = row.get("inputs")
    if inputs is not None and not isinstance(inputs, Mapping):
        message = "Node 'inputs' must be an object."
        problems.append(GraphProblem("inputs_not_object", message, node_id=node_id))
        inputs = None
    edges = {
        port: _read_edges(node_id, port, value, problems) for port, value in (inputs or {}).items()
    }
    keep = row.get("keep", True)
    if not isinstance(keep, bool):
        message = "Node 'keep' must be true or false."
        problems.append(GraphProblem("keep_not_boolean", message, node_id=node_id))
        keep = True
    return Node(node_id, node_type, dict(params or {}), edges, keep)


def _read_edges(
    node_id: str, port: str, value: object, problems: list[GraphProblem]
) -> tuple[Edge, ...]:
    rows = value if isinstance(value, list) else [value]
    edges: list[Edge] = []
    for row in rows:
        if not isinstance(row, Mapping):
            message = "An input edge must be an object with 'from' and 'output'."
            problems.append(GraphProblem("edge_not_object", message, node_id, port))
            continue
        source, output = row.get("from"), row.get("output")
        if not (isinstance(source, str) and isinstance(output, str)):
            message = "An input edge needs string 'from' and 'output'."
            problems.append(GraphProblem("edge_incomplete", message, node_id, port))
            continue
        edges.append(Edge(source, output))
    return tuple(edges)


def _duplicates(nodes: list[Node]) -> list[GraphProblem]:
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for node in nodes:
        if node.id in seen:
            twice[node.id] = None
        seen.add(node.id)
    if not twice:
        return []
    return [GraphProblem("duplicate_node_ids", f"Duplicate node ids: {list(twice)!r}.")]


def graph_hash(document: object, targets: tuple[str, ...]) -> str:
    """Identity of a submission: target(s) and the nodes' ids, types, params and edges.

    Equal for documents that differ only in key order, in unknown keys, or in writing a single edge
    as an object or as a list of one.
    """
    graph, _ = read_graph(document)
    body = {
        "targets": list(targets),
        "nodes": [
            [
                node.id,
                node.type,
                node.params,
                {
                    port: [[edge.source, edge.output] for edge in edges]
                    for port, edges in node.inputs.items()
                },
                *([] if node.keep else ["not kept"]),
            ]
            for node in graph.nodes
        ],
    }
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
