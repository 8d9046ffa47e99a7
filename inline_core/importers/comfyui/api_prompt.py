"""API prompts: the form that a ComfyUI server takes, cleaned of what is no part of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from inline_core.importers.comfyui.report import Reason, Report

_KEYS: Final = frozenset({"class_type", "inputs", "_meta"})
_LINK_LENGTH: Final = 2


def is_link(value: Any) -> bool:
    """Whether an input's value is a link: a list of a node id and an output number."""
    return (
        isinstance(value, list)
        and len(value) == _LINK_LENGTH
        and isinstance(value[0], str)
        and isinstance(value[1], int)
        and not isinstance(value[1], bool)
    )


def is_finite(value: Any) -> bool:
    """Whether a JSON value holds no NaN and no infinity, at any depth."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, float) and not math.isfinite(part):
            return False
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part.values())
    return True


def read_api_prompt(document: Mapping[str, Any], report: Report) -> dict[str, dict[str, Any]]:
    """The nodes of an API prompt with only the keys that count; what goes is reported."""
    prompt: dict[str, dict[str, Any]] = {}
    for node_id, entry in document.items():
        kind = entry.get("class_type") if isinstance(entry, Mapping) else None
        if not isinstance(kind, str):
            message = "this entry has no class_type, so it is no node, and is left out"
            report.error(Reason.MALFORMED, message, node_id)
            continue
        prompt[node_id] = {"class_type": kind, "inputs": {}}
        if isinstance(entry.get("_meta"), Mapping):
            prompt[node_id]["_meta"] = dict(entry["_meta"])
        for key in entry.keys() - _KEYS:
            message = f"the key {key!r} is no part of a prompt and is left out"
            report.info(Reason.EXTRA_KEY, message, node_id, kind)
    for node_id, node in prompt.items():
        inputs = document[node_id].get("inputs")
        if isinstance(inputs, Mapping):
            node["inputs"] = dict(_inputs(inputs, prompt, node_id, report))
        elif inputs is not None:
            message = "its inputs are no object and are left out"
            report.error(Reason.MALFORMED, message, node_id, node["class_type"])
    return prompt


def _inputs(
    inputs: Mapping[str, Any], prompt: Mapping[str, Any], node_id: str, report: Report
) -> Iterator[tuple[str, Any]]:
    kind = prompt[node_id]["class_type"]
    for name, value in inputs.items():
        if is_link(value) and value[0] not in prompt:
            message = f"the link is left out: node {value[0]} is not in the prompt"
            report.error(Reason.MISSING_LINK, message, node_id, kind, name)
        elif not is_finite(value):
            message = "the value is no number that JSON can hold (NaN or infinity): it is left out"
            report.error(Reason.NOT_FINITE, message, node_id, kind, name)
        else:
            yield name, value


def cyclic_nodes(prompt: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """The rings of nodes that feed each other (strongly connected, or fed by themselves).

    Tarjan's algorithm (SIAM J. Comput. 1(2), 1972) with an explicit stack.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_nodes: list[str] = []
    is_open: set[str] = set()
    groups: list[list[str]] = []
    for start in prompt:
        work = [] if start in index else [(start, iter(_sources(prompt, start)))]
        while work:
            node, sources = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                open_nodes.append(node)
                is_open.add(node)
            following = next((source for source in sources if source not in index), None)
            if following is not None:
                work.append((following, iter(_sources(prompt, following))))
                continue
            work.pop()
            for source in _sources(prompt, node):
                if source in is_open:
                    low[node] = min(low[node], low[source])
            if low[node] == index[node]:
                group = _closed(open_nodes, is_open, node)
                if len(group) > 1 or node in _sources(prompt, node):
                    groups.append(group)
    return groups


def _closed(open_nodes: list[str], is_open: set[str], node: str) -> list[str]:
    """Take the nodes of a finished component off the stack."""
    group: list[str] = []
    while not group or group[-1] != node:
        group.append(open_nodes.pop())
        is_open.discard(group[-1])
    return group[::-1]


def _sources(prompt: Mapping[str, Mapping[str, Any]], node_id: str) -> list[str]:
    values = prompt[node_id]["inputs"].values()
    return [value[0] for value in values if is_link(value) and value[0] in prompt]
