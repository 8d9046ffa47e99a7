"""Fingerprints: equal for two nodes exactly when they must give the same result.

A node's fingerprint covers its type and version, its params with defaults and resolved seeds, the
content of the files it reads, and the fingerprints of everything upstream.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from inline_core.graph.model import Graph, Node
from inline_core.graph.spec import NodeSpec

ContentStamps = Callable[[Node, NodeSpec, Mapping[str, Any]], Mapping[str, str]]
"""Gives, for a node, the identity of each file or asset its params name."""


def fingerprints(
    graph: Graph,
    order: Iterable[str],
    specs: Mapping[str, NodeSpec],
    params: Mapping[str, Mapping[str, Any]],
    stamps: ContentStamps,
) -> dict[str, str]:
    """One hex digest per node of `order`, which must be in execution order; linear."""
    known: dict[str, str] = {}
    for node_id in order:
        node = graph.by_id[node_id]
        spec = specs[node.type]
        body = {
            "type": node.type,
            "version": spec.version,
            "params": params[node_id],
            "stamps": stamps(node, spec, params[node_id]),
            "inputs": [
                [name, [[known[edge.source], edge.output] for edge in node.inputs[name]]]
                for name in (*(port.id for port in spec.inputs), *spec.wired_params(node.inputs))
                if node.inputs.get(name)
            ],
        }
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), default=str)
        known[node_id] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return known
