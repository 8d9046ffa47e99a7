"""Edges that lead to params, nodes that are not kept, and runs with several targets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live import LiveServer


def number(node_id: str, value: float) -> dict[str, Any]:
    return {"id": node_id, "type": "input/number", "params": {"value": value}}


def edge(node: str, output: str) -> dict[str, str]:
    return {"from": node, "output": output}


def solid(node_id: str, **more: Any) -> dict[str, Any]:
    params = {"width": 64, "height": 48, "colour": "#336699"}
    return {"id": node_id, "type": "image/solid", "params": params, **more}


def run(server: LiveServer, nodes: list[dict[str, Any]], *targets: str, **more: Any) -> Any:
    graph = {"schemaVersion": 1, "nodes": nodes}
    body = {"graph": graph, "targets": list(targets), **more}
    return server.http.post("/v1/runs", json=body, params={"wait": 30})


SIZED = [
    solid("a"),
    {"id": "size", "type": "image/size", "inputs": {"image": edge("a", "image")}},
    {
        "id": "b",
        "type": "image/solid",
        "params": {"colour": "#000000", "width": 8},
        "inputs": {"width": edge("size", "height"), "height": edge("size", "width")},
    },
]


def test_an_edge_gives_the_value_of_a_param(server: LiveServer) -> None:
    answer = run(server, SIZED, "b").json()
    assert answer["status"] == "done", answer
    (take,) = (take for take in answer["takes"] if take["nodeId"] == "b")
    assert (take["width"], take["height"]) == (48, 64)
    # What was wired is what the take tells, and what its recipe wires again.
    assert (take["params"]["width"], take["params"]["height"]) == (48, 64)
    recipe = server.http.get(f"/v1/takes/{take['id']}/graph").json()
    again = run(server, recipe["graph"]["nodes"], recipe["target"], force=True).json()
    (same,) = (one for one in again["takes"] if one["nodeId"] == "b")
    assert same["hash"] == take["hash"]


def test_another_value_upstream_is_another_result(server: LiveServer) -> None:
    first = run(server, SIZED, "b").json()["takes"][-1]
    params = {"width": 80, "height": 48, "colour": "#336699"}
    other = run(server, [{**SIZED[0], "params": params}, *SIZED[1:]], "b").json()["takes"][-1]
    assert (other["width"], other["height"]) == (48, 80)
    assert other["id"] != first["id"]
    assert run(server, SIZED, "b").json()["takes"][-1]["id"] == first["id"]


@pytest.mark.parametrize(
    ("target", "inputs", "code", "said"),
    [
        ("image/solid", {"width": edge("t", "text")}, "kind_mismatch", "text into number"),
        ("image/solid", {"width": [edge("n", "number"), edge("n", "number")]},
         "too_many_edges", "'width' takes a single edge"),
        ("image/solid", {"depth": edge("n", "number")}, "unknown_input_port", "'depth'"),
        ("input/image", {"asset": edge("t", "text")}, "unknown_input_port", "'asset'"),
        ("image/solid", {"width": edge("x", "number")}, "unknown_source_node", "'x'"),
        ("image/solid", {"width": edge("n", "other")}, "unknown_output_port", "'other'"),
    ],
)  # fmt: skip
def test_wrong_edges_are_refused(
    server: LiveServer, target: str, inputs: Any, code: str, said: str
) -> None:
    text = {"id": "t", "type": "input/text", "params": {"text": "wide"}}
    nodes = [number("n", 64), text, {"id": "b", "type": target, "inputs": inputs}]
    error = run(server, nodes, "b").json()["error"]
    assert error["problems"][0]["code"] == code
    assert said in error["message"]


def test_a_value_that_the_param_does_not_take_fails_the_node(server: LiveServer) -> None:
    wired = {"width": edge("n", "number")}
    nodes = [number("n", 0.5), {"id": "b", "type": "image/solid", "inputs": wired}]
    answer = run(server, nodes, "b").json()
    assert answer["status"] == "error"
    assert answer["error"]["nodeId"] == "b"
    assert answer["error"]["message"] == (
        "What is wired to 'width' must be a whole number, got 0.5."
    )
    large = run(server, [number("n", 1e6), nodes[1]], "b").json()["error"]
    assert "at most 16384" in large["message"]
    assert run(server, SIZED, "b").json()["status"] == "done"


def test_a_seed_may_be_wired(server: LiveServer) -> None:
    def painted(value: float) -> Any:
        paint = {
            "id": "p",
            "type": "test/paint",
            "inputs": {"seed": edge("n", "number"), "text": edge("t", "text")},
        }
        text = {"id": "t", "type": "input/text", "params": {"text": "x"}}
        return run(server, [number("n", value), text, paint], "p").json()

    answer = painted(11)
    assert answer["status"] == "done", answer
    assert answer["takes"][0]["params"]["seed"] == 11
    assert answer["seeds"] == {}
    assert "0 or more" in painted(-1)["error"]["message"]


def test_what_is_not_kept_is_no_take_unless_it_is_a_target(server: LiveServer) -> None:
    invert = {"id": "i", "type": "image/invert", "inputs": {"image": edge("h", "image")}}
    nodes = [solid("h", keep=False), invert]
    answer = run(server, nodes, "i").json()
    assert [take["nodeId"] for take in answer["takes"]] == ["i"]
    both = run(server, nodes, "i", "h").json()
    assert [take["nodeId"] for take in both["takes"]] == ["h", "i"]
    assert both["takes"][1]["id"] == answer["takes"][0]["id"]
    odd = run(server, [solid("h", keep="no"), invert], "i").json()["error"]
    assert odd["problems"][0]["code"] == "keep_not_boolean"


def test_several_targets_are_one_run(server: LiveServer) -> None:
    nodes = [solid("a"), solid("b"), solid("c")]
    nodes[1]["params"] = {**nodes[1]["params"], "width": 32}
    answer = run(server, nodes, "a", "b", clientRunId="two-of-three").json()
    assert (answer["target"], answer["targets"]) == ("a", ["a", "b"])
    assert set(answer["nodes"]) == {"a", "b"}
    assert {take["nodeId"] for take in answer["takes"]} == {"a", "b"}
    again = run(server, nodes, "a", "b", clientRunId="two-of-three")
    assert (again.status_code, again.json()["runId"]) == (200, answer["runId"])
    assert run(server, nodes, "a", clientRunId="two-of-three").status_code == 409
    retried = server.http.post(f"/v1/runs/{answer['runId']}/retry").json()["runId"]
    assert server.wait_until_final(retried)["targets"] == ["a", "b"]
    one = server.submit(nodes, "c", wait=20).json()
    assert one["targets"] == ["c"]


@pytest.mark.parametrize("targets", [[], "a", [1], [""], ["a", "nobody"]])
def test_odd_targets_are_refused(server: LiveServer, targets: Any) -> None:
    body = {"graph": {"schemaVersion": 1, "nodes": [solid("a")]}, "targets": targets}
    reply = server.http.post("/v1/runs", json=body)
    assert reply.status_code == 422
    assert "target" in reply.text or "nobody" in reply.text
    differing = server.http.post("/v1/runs", json={**body, "targets": ["a"], "target": "b"})
    assert "give only 'targets'" in differing.json()["error"]["message"]
