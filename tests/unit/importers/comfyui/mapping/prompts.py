"""Small API prompts, and what they become."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from inline_core.graph.spec import NodeSpec
from inline_core.graph.validate import check_graph
from inline_core.importers.comfyui.converting import Conversion, NodeReport, convert
from inline_core.importers.comfyui.flattening import flatten
from inline_core.importers.comfyui.reading import read_workflow
from inline_core.nodes.registry import node_specs

Prompt = dict[str, Any]


@cache
def specs() -> Mapping[str, NodeSpec]:
    return node_specs()


def step(kind: str, **inputs: Any) -> dict[str, Any]:
    """A node of a prompt; `__` in a name stands for a dot."""
    named = {name.replace("__", "."): value for name, value in inputs.items()}
    return {"class_type": kind, "inputs": named}


def converted(prompt: Prompt, *, valid: bool = True) -> Conversion:
    """The conversion of a prompt; its graph is one that can run."""
    result = convert(flatten(read_workflow(json.dumps(prompt))), specs(), lambda _, __: True)
    if valid and result.targets:
        check_graph(result.graph, result.targets, specs(), lambda _: ["m.safetensors"], strict=True)
    return result


def nodes_of(result: Conversion) -> dict[str, dict[str, Any]]:
    """The nodes of a graph by id, each as (type, params, edges) under these names."""
    found = {}
    for node in result.graph["nodes"]:
        edges = {port: _shown(edge) for port, edge in node["inputs"].items()}
        found[node["id"]] = {"type": node["type"], **node["params"], **edges}
    return found


def _shown(edge: Any) -> Any:
    """An edge as `<node>.<output>`, several as a list of those."""
    if isinstance(edge, list):
        return [_shown(one) for one in edge]
    return f"{edge['from']}.{edge['output']}"


def report_of(result: Conversion, node_id: str) -> NodeReport:
    return next(node for node in result.nodes if node.node_id == node_id)
