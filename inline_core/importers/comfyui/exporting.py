"""Imported graphs back to ComfyUI: the prompt that they came from, with what was changed since.

An imported graph carries its prompt as `origin`, and which of its params came from which input.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from inline_core.errors import InvalidRequest, shown_value
from inline_core.graph.document import read_graph
from inline_core.graph.model import Graph, Node

SOURCE = "comfyui"


@dataclass(frozen=True, slots=True)
class Export:
    """An API prompt, and what of the graph could not be written into it."""

    prompt: dict[str, dict[str, Any]]
    left_out: tuple[str, ...]


def origin_of(
    prompt: Mapping[str, Any],
    nodes: Mapping[str, Mapping[str, Any]],
    params: Mapping[str, Mapping[str, tuple[str, str]]],
) -> dict[str, Any]:
    """What an imported graph keeps of where it came from.

    `nodes` are those of the graph as they were imported, `params` tell the prompt's (node, input)
    for params that were taken as they are.
    """
    return {
        "source": SOURCE,
        "prompt": dict(prompt),
        "inputs": {
            name: {key: list(place) for key, place in of.items()} for name, of in params.items()
        },
        "params": {name: dict(node["params"]) for name, node in nodes.items()},
    }


def export_prompt(document: Mapping[str, Any]) -> Export:
    """The API prompt of an imported graph, with its params as they are now.

    Raises: InvalidRequest for a graph that was not imported from ComfyUI.
    """
    origin = document.get("origin")
    found = origin if isinstance(origin, Mapping) else {}
    if found.get("source") != SOURCE or not isinstance(found.get("prompt"), Mapping):
        message = (
            "This graph was not imported from ComfyUI: only a graph that still has the 'origin' of "
            "its import can be written back."
        )
        raise InvalidRequest(message)
    prompt = copy.deepcopy(dict(found["prompt"]))
    graph, _ = read_graph(document)
    before, inputs = found.get("params", {}), found.get("inputs", {})
    left_out = list(_new_nodes(graph, before))
    for node in graph.nodes:
        if node.id in before:
            left_out.extend(_write(prompt, node, before[node.id], inputs.get(node.id, {})))
    return Export(prompt, tuple(left_out))


def _new_nodes(graph: Graph, before: Mapping[str, Any]) -> Iterator[str]:
    for node in graph.nodes:
        if node.id not in before:
            yield f"node {node.id} ({node.type}) is none of the workflow's and is left out"
    for name in before:
        if name not in graph.by_id:
            yield f"node {name} was taken out of the graph, and is still in the workflow"


def _write(
    prompt: dict[str, dict[str, Any]],
    node: Node,
    before: Mapping[str, Any],
    inputs: Mapping[str, Any],
) -> Iterator[str]:
    """Set the params of one node that were changed; gives those that have no place to go to."""
    for key in dict.fromkeys([*before, *node.params]):
        value = node.params.get(key)
        if value == before.get(key):
            continue
        place = inputs.get(key)
        if place is None or place[0] not in prompt:
            yield (
                f"{key} of node {node.id} is now {shown_value(value)}, which no input of the "
                "workflow stands for: it is left out"
            )
            continue
        prompt[place[0]]["inputs"][place[1]] = value
