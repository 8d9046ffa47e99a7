"""Every problem of a graph is reported, with its place; nothing that is right is refused."""

from __future__ import annotations

import time
from typing import Any

import pytest

from inline_core.errors import InvalidGraph
from inline_core.graph.validate import CheckedGraph, check_graph
from tests.fault_nodes import specs_with_faults

SPECS = specs_with_faults()
FILES = {"vae": ["ae.safetensors", "sub/\u00e9.safetensors"], "diffusion_models": []}


def check(nodes: Any, target: str = "a", **options: bool) -> CheckedGraph:
    document = {"schemaVersion": 1, "nodes": nodes}
    return check_graph(document, (target,), SPECS, lambda name: FILES.get(name, []), **options)


def problems(nodes: Any, target: str = "a", **options: bool) -> list[tuple[str, Any, Any, Any]]:
    with pytest.raises(InvalidGraph) as caught:
        check(nodes, target, **options)
    return [(p.code, p.node_id, p.port, p.param) for p in caught.value.problems]


def text(node_id: str = "a", **params: Any) -> dict[str, Any]:
    return {"id": node_id, "type": "input/text", "params": params}


def edge(source: str, output: str = "text") -> dict[str, str]:
    return {"from": source, "output": output}


def test_all_problems_at_once() -> None:
    nodes = [
        {"id": "a", "type": "encode/text", "inputs": {"zzz": edge("t"), "prompt": edge("nobody")}},
        {"id": "b", "type": "nope"},
        {"id": "c", "type": "latent/empty", "params": {"width": 12, "batch": "many"}},
        {"id": "d", "type": "vae/encode", "inputs": {"vae": [], "image": edge("t")}},
        {"id": "t", "type": "input/text"},
        {"id": "x", "type": "load/lora", "inputs": {"lora": edge("y", "lora")}},
        {"id": "y", "type": "load/lora", "inputs": {"lora": edge("x", "lora")}},
    ]
    assert problems(nodes) == [
        ("unknown_input_port", "a", "zzz", None),
        ("unknown_source_node", "nobody", "prompt", None),
        ("missing_input", "a", "text_encoder", None),
        ("unknown_node_type", "b", None, None),
        ("param_out_of_range", "c", None, "width"),
        ("param_wrong_type", "c", None, "batch"),
        ("kind_mismatch", "d", "image", None),
        ("missing_input", "d", "vae", None),
        ("cycle", "x", None, None),
    ]


def test_two_edges_on_a_single_port_and_one_element_lists() -> None:
    nodes = [
        text("p"),
        text("q"),
        {"id": "a", "type": "test/paint", "inputs": {"text": [edge("p")]}},
    ]
    assert check(nodes).order == ("p", "a")
    nodes[2]["inputs"] = {"text": [edge("p"), edge("q")]}
    assert problems(nodes) == [("too_many_edges", "a", "text", None)]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"width": "512"}, {"width": 512}),
        ({"width": 512.0}, {"width": 512}),
        ({"width": None}, {}),
        ({"batch": 3}, {"batch": 3}),
    ],
)
def test_values_convert_without_loss(params: dict[str, Any], expected: dict[str, Any]) -> None:
    checked = check([{"id": "a", "type": "latent/empty", "params": params}])
    assert checked.params["a"] == expected
    assert all(type(v) is int for v in checked.params["a"].values())


@pytest.mark.parametrize("value", [512.5, "wide", True, [], {}, "nan", "inf"])
def test_values_that_would_lose_are_refused(value: Any) -> None:
    nodes = [{"id": "a", "type": "latent/empty", "params": {"width": value}}]
    assert problems(nodes) == [("param_wrong_type", "a", None, "width")]


def test_options_and_files() -> None:
    def sample(**params: Any) -> list[dict[str, Any]]:
        return [{"id": "a", "type": "load/vae", "params": params}]

    assert check(sample(file="ae.safetensors")).params["a"] == {"file": "ae.safetensors"}
    # The same name in decomposed Unicode is the same file.
    assert check(sample(file="sub/e\u0301.safetensors"))
    assert check(sample(file=""))
    for bad in ("../../etc/passwd", "other.safetensors"):
        assert problems(sample(file=bad)) == [("param_not_an_option", "a", None, "file")]
    bad_sampler = [{"id": "a", "type": "test/boom", "params": {"kind": "quietly"}}]
    assert problems(bad_sampler) == [("param_not_an_option", "a", None, "kind")]


def test_unknown_params_warn_and_are_errors_when_strict() -> None:
    nodes = [text(text="x", zzz=1)]
    checked = check(nodes)
    assert [(w.code, w.node_id, w.param) for w in checked.warnings] == [
        ("unknown_param", "a", "zzz")
    ]
    assert checked.params["a"] == {"text": "x"}
    assert problems(nodes, strict=True) == [("unknown_param", "a", None, "zzz")]


def test_a_cycle_outside_the_closure_and_a_self_loop_are_reported() -> None:
    loop = {"id": "s", "type": "load/lora", "inputs": {"lora": edge("s", "lora")}}
    assert problems([text(), loop]) == [("cycle", "s", None, None)]


def test_a_comfyui_workflow_is_named() -> None:
    for document in (
        {"last_node_id": 1, "nodes": [], "links": []},
        {"1": {"class_type": "KSampler"}},
    ):
        with pytest.raises(InvalidGraph, match="ComfyUI"):
            check_graph(document, ("a",), SPECS, lambda _: [])


def test_large_graphs_are_linear() -> None:
    def seconds(count: int) -> float:
        nodes: list[dict[str, Any]] = [{"id": "n0", "type": "test/concat"}]
        nodes += [
            {"id": f"n{i}", "type": "test/concat", "inputs": {"first": edge(f"n{i - 1}")}}
            for i in range(1, count)
        ]
        started = time.thread_time()
        assert len(check(nodes, f"n{count - 1}").order) == count
        return time.thread_time() - started

    small, large = min(seconds(3000) for _ in range(3)), min(seconds(12_000) for _ in range(3))
    # A quadratic step would make it 16 times as slow.
    assert large < small * 8
