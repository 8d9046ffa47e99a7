"""Checking a graph before anything runs: every problem, with node, port or param."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inline_core.errors import GraphProblem, InvalidGraph
from inline_core.graph.document import read_graph
from inline_core.graph.model import Edge, Graph, Node
from inline_core.graph.order import cycles, execution_order
from inline_core.graph.params import OptionSource, ParamRefused, convert
from inline_core.graph.ports import accepts
from inline_core.graph.spec import NodeSpec, ParamSpec, PortSpec, kind_of_param, param_accepts

_SHOWN_CYCLE = 12


@dataclass(frozen=True, slots=True)
class CheckedGraph:
    """A graph that can run: its nodes in execution order, and the params as the nodes take them.

    `params` holds, for each node of the closure, only what the client set (converted); defaults are
    not filled in, since a model variant may bring its own.
    """

    graph: Graph
    targets: tuple[str, ...]
    order: tuple[str, ...]
    params: Mapping[str, Mapping[str, Any]]
    warnings: tuple[GraphProblem, ...]


def check_graph(
    document: object,
    targets: Sequence[str],
    specs: Mapping[str, NodeSpec],
    options: OptionSource,
    *,
    strict: bool = False,
) -> CheckedGraph:
    """Check a decoded graph document.

    `strict` makes unknown params an error instead of a warning.
    Raises: InvalidGraph with *all* problems; its warnings are reported only with a valid graph.
    """
    graph, problems = read_graph(document)
    params: dict[str, Mapping[str, Any]] = {}
    for node in graph.nodes:
        spec = specs.get(node.type)
        if spec is None:
            message = f"Unknown node type {node.type!r}."
            problems.append(GraphProblem("unknown_node_type", message, node_id=node.id))
            continue
        problems.extend(_check_inputs(graph, node, spec, specs))
        params[node.id] = _check_params(node, spec, options, problems, strict=strict)
    problems.extend(_check_cycles(graph))
    for target in targets:
        if target not in graph.by_id and not _unreadable(problems):
            message = f"No node with id {target!r}."
            problems.append(GraphProblem("unknown_target", message, node_id=target))
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise InvalidGraph(errors)
    order = tuple(execution_order(graph, targets))
    kept = {node_id: params[node_id] for node_id in order}
    return CheckedGraph(graph, tuple(targets), order, kept, tuple(problems))


def _unreadable(problems: Sequence[GraphProblem]) -> bool:
    """A document without nodes has one fault; naming the target too would only distract."""
    codes = {"graph_not_object", "nodes_not_list", "comfyui_workflow"}
    return any(problem.code in codes for problem in problems)


def _check_inputs(
    graph: Graph, node: Node, spec: NodeSpec, specs: Mapping[str, NodeSpec]
) -> list[GraphProblem]:
    problems: list[GraphProblem] = []
    for port_id, edges in node.inputs.items():
        port = spec.input(port_id) or spec.param(port_id)
        if port is None or (isinstance(port, ParamSpec) and kind_of_param(port) is None):
            names = ", ".join(known.id for known in spec.inputs) or "none"
            message = f"{node.type!r} has no input port {port_id!r} (it has: {names})."
            problems.append(GraphProblem("unknown_input_port", message, node.id, port_id))
            continue
        if len(edges) > 1 and (isinstance(port, ParamSpec) or not port.kind.is_list):
            message = f"Input {port_id!r} takes a single edge."
            problems.append(GraphProblem("too_many_edges", message, node.id, port_id))
        for edge in edges:
            problem = _check_edge(graph, node, port_id, port, edge, specs)
            if problem is not None:
                problems.append(problem)
    for port in spec.inputs:
        if port.required and not node.inputs.get(port.id):
            message = f"{spec.title} needs an input wired to {port.label!r}."
            problems.append(GraphProblem("missing_input", message, node.id, port.id))
    return problems


def _check_edge(
    graph: Graph,
    node: Node,
    name: str,
    port: PortSpec | ParamSpec,
    edge: Edge,
    specs: Mapping[str, NodeSpec],
) -> GraphProblem | None:
    source = graph.by_id.get(edge.source)
    if source is None:
        # The id that is missing is what the client must find, so the problem names it.
        message = f"No node with id {edge.source!r}."
        return GraphProblem("unknown_source_node", message, edge.source, name)
    source_spec = specs.get(source.type)
    if source_spec is None:
        return None
    output = source_spec.output(edge.output)
    if output is None:
        names = ", ".join(known.id for known in source_spec.outputs) or "none"
        message = f"{source.type!r} has no output port {edge.output!r} (it has: {names})."
        return GraphProblem("unknown_output_port", message, node.id, name)
    if isinstance(port, ParamSpec):
        fits, kind = param_accepts(port, output.kind), kind_of_param(port)
    else:
        fits, kind = accepts(port.kind, output.kind), port.kind
    if not fits:
        wanted = kind.value if kind is not None else "a param that can only be set"
        message = f"Cannot wire {output.kind.value} into {wanted} at {node.id}.{name}."
        return GraphProblem("kind_mismatch", message, node.id, name)
    return None


def _check_params(
    node: Node,
    spec: NodeSpec,
    options: OptionSource,
    problems: list[GraphProblem],
    *,
    strict: bool,
) -> Mapping[str, Any]:
    values: dict[str, Any] = {}
    for key, value in node.params.items():
        param = spec.param(key)
        if param is None:
            message = f"{node.type!r} has no param {key!r}; it was ignored."
            severity = "error" if strict else "warning"
            if strict:
                message = f"{node.type!r} has no param {key!r}."
            problems.append(
                GraphProblem("unknown_param", message, node.id, param=key, severity=severity)
            )
            continue
        if value is None or (node.inputs.get(key) and spec.input(key) is None):
            continue
        try:
            values[key] = convert(param, value, options)
        except ParamRefused as refused:
            message = f"Param {key!r} {refused.reason}."
            problems.append(GraphProblem(refused.code, message, node.id, param=key))
    return values


def _check_cycles(graph: Graph) -> list[GraphProblem]:
    problems: list[GraphProblem] = []
    for group in cycles(graph):
        shown = ", ".join(sorted(group)[:_SHOWN_CYCLE]) + (
            f" and {len(group) - _SHOWN_CYCLE} more" if len(group) > _SHOWN_CYCLE else ""
        )
        message = f"This graph has a cycle through {shown}."
        problems.append(GraphProblem("cycle", message, node_id=min(group)))
    return problems
