"""Defaults and seeds are settled at submit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inline_core.engine.submission import effective_params
from inline_core.graph.validate import check_graph
from tests.fault_nodes import specs_with_faults

SPECS = specs_with_faults()


class Variants:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def variant_defaults(self, family: str, name: str = "") -> Mapping[str, Any]:
        assert family == "z-image"
        self.asked.append(name)
        return {"width": 128, "height": 128, "steps": 8, "guidance": 0.0}


def settle(**params: Any) -> tuple[dict[str, Any], dict[str, int], list[str]]:
    nodes: list[dict[str, Any]] = [
        {"id": "p", "type": "input/text"},
        {"id": "l", "type": "load/diffusion-model", "params": {"file": ""}},
        {
            "id": "m",
            "type": "alibaba/z-image-turbo",
            "params": params,
            "inputs": {
                "prompt": {"from": "p", "output": "text"},
                "model": {"from": "l", "output": "model"},
            },
        },
    ]
    checked = check_graph({"schemaVersion": 1, "nodes": nodes}, ("m",), SPECS, lambda _: ["x"])
    variants = Variants()
    values, seeds = effective_params(checked, SPECS, variants)
    return values["m"], seeds, variants.asked


def test_the_model_brings_defaults_and_the_client_wins() -> None:
    values, _, asked = settle(width=256)
    assert (values["width"], values["height"], values["steps"]) == (256, 128, 8)
    assert asked == [""]


def test_random_seeds_are_drawn_and_given_ones_kept() -> None:
    drawn = {settle()[1]["m"] for _ in range(5)}
    assert len(drawn) > 1
    assert all(0 <= seed < 2**31 for seed in drawn)
    assert settle(seed=7)[1] == {"m": 7}
    assert settle(seed="12")[0]["seed"] == 12
