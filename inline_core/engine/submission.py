"""From a checked graph to a run that can be stored: defaults and random seeds are settled here.

What is stored is what will be executed, also after a restart: a random seed is drawn once, at
submit, and a default that comes from the chosen model is fixed there too.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Protocol

from inline_core.graph.model import Node
from inline_core.graph.spec import NodeSpec
from inline_core.graph.validate import CheckedGraph

_RANDOM_SEED_LIMIT = 2**31


class VariantDefaults(Protocol):
    """The models folder, as far as defaults go."""

    def variant_defaults(self, family: str, name: str = "") -> Mapping[str, Any]:
        """Native size, steps, guidance of the model `name` (empty: the one that is picked)."""


def effective_params(
    checked: CheckedGraph, specs: Mapping[str, NodeSpec], variants: VariantDefaults
) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """All params of each node of the closure, and the resolved seed of each node that has one."""
    params: dict[str, dict[str, Any]] = {}
    seeds: dict[str, int] = {}
    for node_id in checked.order:
        spec = specs[checked.graph.by_id[node_id].type]
        values = _with_defaults(checked, checked.graph.by_id[node_id], spec, specs, variants)
        for param in spec.params:
            if param.widget == "seed" and values[param.key] is not None:
                if values[param.key] < 0:
                    values[param.key] = secrets.randbelow(_RANDOM_SEED_LIMIT)
                seeds[node_id] = values[param.key]
        params[node_id] = values
    return params, seeds


def _with_defaults(
    checked: CheckedGraph,
    node: Node,
    spec: NodeSpec,
    specs: Mapping[str, NodeSpec],
    variants: VariantDefaults,
) -> dict[str, Any]:
    given = checked.params[node.id]
    from_variant: Mapping[str, Any] = {}
    if spec.family is not None and any(
        param.variant_default and param.key not in given for param in spec.params
    ):
        name = _model_name(checked, node, given, specs)
        from_variant = variants.variant_defaults(spec.family, name)
    values: dict[str, Any] = {}
    wired = {key for key in spec.wired_params(node.inputs) if node.inputs[key]}
    for param in spec.params:
        if param.key in wired:
            values[param.key] = None  # an edge gives it
        elif param.key in given:
            values[param.key] = given[param.key]
        elif param.variant_default is not None and param.variant_default in from_variant:
            values[param.key] = from_variant[param.variant_default]
        else:
            values[param.key] = param.default
    return values


def _model_name(
    checked: CheckedGraph, node: Node, given: Mapping[str, Any], specs: Mapping[str, NodeSpec]
) -> str:
    """The model file a one-click node will use: from a wired loader, or its own param."""
    for edge in node.inputs.get("model", ()):
        source = checked.graph.by_id[edge.source]
        if specs[source.type].param("file") is not None:
            return str(checked.params[source.id].get("file", ""))
    return str(given.get("model", ""))
