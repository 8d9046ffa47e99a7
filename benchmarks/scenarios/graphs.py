"""Graphs: checking, fingerprints and executing chains, and how they grow."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import Any

import httpx

from benchmarks.measure import Result, alternate, best_of
from benchmarks.subject import Subject, ours
from inline_core.graph.fingerprint import fingerprints
from inline_core.graph.validate import check_graph
from tests.fault_nodes import specs_with_faults


def chain(count: int, salt: str = "") -> dict[str, Any]:
    """A chain of cheap text nodes."""
    nodes: list[dict[str, Any]] = [
        {"id": "n0", "type": "test/concat", "params": {"add": f"x{salt}"}}
    ]
    nodes += [
        {
            "id": f"n{i}",
            "type": "test/concat",
            "inputs": {"first": {"from": f"n{i - 1}", "output": "text"}},
        }
        for i in range(1, count)
    ]
    return {"schemaVersion": 1, "nodes": nodes}


def graph_growth(*, quick: bool) -> list[Result]:
    """CPU time of check and fingerprints against JSON plus a topological sort; and its exponent."""
    specs = specs_with_faults()
    sizes = (100, 1000, 3000) if quick else (100, 1000, 3000, 12_000)
    results, points = [], []
    for size in sizes:
        text = json.dumps(chain(size))
        result = Result(f"check + keys, chain of {size}", "ms", "lower")
        alternate(
            result,
            lambda text=text, size=size: _ours(text, size, specs) * 1000,  # type: ignore[misc]
            lambda text=text: best_of(3, lambda: _sketch(text)) * 1000,  # type: ignore[misc]
            3,
        )
        points.append((math.log(size), math.log(min(result.us))))
        results.append(result)
    slope = _slope(points)
    growth = Result("growth of check + keys", "exponent", "lower", [slope], [1.0], gate=1.15)
    return [*results, growth]


def _ours(text: str, size: int, specs: Mapping[str, Any]) -> float:
    def work() -> None:
        checked = check_graph(json.loads(text), (f"n{size - 1}",), specs, lambda _: [])
        fingerprints(checked.graph, checked.order, specs, checked.params, lambda *_: {})

    return best_of(3, work)


def _sketch(text: str) -> None:
    """The least that must be done: decode, index, sort."""
    nodes = {node["id"]: node for node in json.loads(text)["nodes"]}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for node_id, node in nodes.items():
        sorter.add(node_id, *(edge["from"] for edge in node.get("inputs", {}).values()))
    list(sorter.static_order())


def _slope(points: list[tuple[float, float]]) -> float:
    """Least-squares slope of log time over log size."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    above = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return above / sum((x - mean_x) ** 2 for x, _ in points)


def executor_overhead(*, quick: bool) -> list[Result]:
    """Server CPU per executed node of a chain, events included, and of a cached re-run."""
    fresh = Result("executed node of a 1000-node chain", "ms CPU", "lower")
    again = Result("cached node of a 1000-node chain", "ms CPU", "lower")
    with ours() as server:
        for number in range(2 if quick else 4):
            fresh.us.append(_run(server, chain(1000, str(number)), "n999"))
            again.us.append(_run(server, chain(1000, str(number)), "n999"))
    return [fresh, again]


def _run(server: Subject, graph: dict[str, Any], target: str) -> float:
    before = server.cpu_s()
    body = {"graph": graph, "target": target}
    run = httpx.post(f"{server.url}/v1/runs?wait=120", json=body, timeout=130).json()
    if run["status"] != "done":
        raise RuntimeError(run["error"])
    return (server.cpu_s() - before) * 1000 / len(graph["nodes"])


def rerun_cached_http(*, quick: bool) -> list[Result]:
    """Submit to done of a cached 250-node graph against a graph of one node."""
    result = Result("cached 250-node graph vs 1 node", "ms", "lower", note="gate: 3x + 20 ms")
    with ours() as server:
        _timed(server, chain(250), "n249")
        for _ in range(3 if quick else 6):
            result.us.append(_timed(server, chain(250), "n249"))
            result.limit.append(_timed(server, chain(1), "n0") * 3 + 20)
    result.gate = 1.0
    return [result]


def _timed(server: Subject, graph: dict[str, Any], target: str) -> float:
    started = time.perf_counter()
    _run(server, graph, target)
    return (time.perf_counter() - started) * 1000
