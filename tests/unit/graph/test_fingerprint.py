"""Fingerprints change exactly when the result must."""

from __future__ import annotations

from typing import Any

from inline_core.graph.fingerprint import fingerprints
from inline_core.graph.validate import check_graph
from tests.fault_nodes import specs_with_faults

SPECS = specs_with_faults()


def keys(shade: int = 1, prompt: str = "x", stamp: str = "s", node_id: str = "a") -> str:
    nodes: list[dict[str, Any]] = [
        {"id": "p", "type": "input/text", "params": {"text": prompt}},
        {
            "id": node_id,
            "type": "test/paint",
            "params": {"shade": shade},
            "inputs": {"text": {"from": "p", "output": "text"}},
        },
    ]
    checked = check_graph({"schemaVersion": 1, "nodes": nodes}, (node_id,), SPECS, lambda _: [])
    found = fingerprints(
        checked.graph, checked.order, SPECS, checked.params, lambda *_: {"file": stamp}
    )
    return found[node_id]


def test_equal_work_has_an_equal_fingerprint_whatever_the_ids() -> None:
    assert keys() == keys()
    assert keys(node_id="other") == keys()


def test_params_ancestors_and_content_count() -> None:
    assert len({keys(), keys(shade=2), keys(prompt="y"), keys(stamp="t")}) == 4
