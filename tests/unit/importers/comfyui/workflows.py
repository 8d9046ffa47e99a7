"""Small saved workflows, written the way ComfyUI's page saves them."""

from __future__ import annotations

import json
from typing import Any

from inline_core.importers.comfyui.flattening import FlatWorkflow, flatten
from inline_core.importers.comfyui.node_table import NodeTable, builtin_table
from inline_core.importers.comfyui.reading import read_workflow
from inline_core.importers.comfyui.report import Reason

UUID = "11111111-1111-4111-8111-{:012d}"


def node(
    node_id: int | str,
    kind: str,
    values: Any = None,
    *,
    inputs: list[tuple[Any, ...]] | None = None,
    outputs: list[str] | None = None,
    mode: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """A node; inputs are (name, type, link) or (name, type, link, widget name), outputs types."""
    slots = []
    for name, slot_type, link, *widget in inputs or []:
        slot = {"name": name, "type": slot_type, "link": link}
        slots.append(slot | ({"widget": {"name": widget[0]}} if widget else {}))
    outs = [{"name": kind_of_output, "type": kind_of_output} for kind_of_output in outputs or []]
    entry = {"id": node_id, "type": kind, "mode": mode, "inputs": slots, "outputs": outs, **more}
    return entry if values is None else entry | {"widgets_values": values}


def workflow(
    nodes: list[dict[str, Any]], links: list[list[Any]], *definitions: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """A workflow of format 0.4; links are [id, from, slot, to, slot, type]."""
    found: dict[str, Any] = {"nodes": nodes, "links": links, "version": 0.4, **more}
    return found | ({"definitions": {"subgraphs": list(definitions)}} if definitions else {})


def subgraph(
    number: int,
    nodes: list[dict[str, Any]],
    links: list[list[Any]],
    inputs: list[tuple[str, str]] | None = None,
    outputs: list[tuple[str, str]] | None = None,
) -> dict[str, Any]:
    """A definition; in its links -10 and -20 are its own ports."""
    names = ("id", "origin_id", "origin_slot", "target_id", "target_slot", "type")
    return {
        "id": UUID.format(number),
        "name": f"subgraph {number}",
        "inputs": [{"name": name, "type": kind} for name, kind in inputs or []],
        "outputs": [{"name": name, "type": kind} for name, kind in outputs or []],
        "nodes": nodes,
        "links": [dict(zip(names, link, strict=True)) for link in links],
    }


def flat(
    document: Any, object_info: dict[str, Any] | None = None, *, seed: int = 0
) -> FlatWorkflow:
    """Read and flatten a document by way of its JSON text."""
    table: NodeTable = builtin_table().over(object_info or {})
    return flatten(read_workflow(json.dumps(document)), table=table, prompt_seed=seed)


def bare(result: FlatWorkflow) -> dict[str, Any]:
    """The prompt without titles."""
    kept = ("class_type", "inputs")
    return {key: {part: entry[part] for part in kept} for key, entry in result.prompt.items()}


def inputs(result: FlatWorkflow, node_id: str) -> dict[str, Any]:
    """The inputs of one node of the prompt."""
    found: dict[str, Any] = result.prompt[node_id]["inputs"]
    return found


def places(result: FlatWorkflow, reason: Reason) -> list[str | None]:
    """Ids of the nodes that have a line with this reason."""
    return [line.node_id for line in result.report if line.reason is reason]
