"""Estimates and giving memory back, over the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from inline_core.devices.budget import GIB, Gpu, Machine
from tests.live import LiveServer
from tests.unit.server.test_zimage_runs import one_click, pixels, primitives, run

Graph = tuple[list[dict[str, Any]], str]


def ask(server: LiveServer, graph: Graph, *, target: bool = True) -> dict[str, Any]:
    body = {"graph": {"schemaVersion": 1, "nodes": graph[0]}}
    reply = server.http.post("/v1/estimate", json=body | ({"target": graph[1]} if target else {}))
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_the_estimate_has_the_words_of_the_contract(tiny_server: LiveServer) -> None:
    misses = tiny_server.services.render.stats()["pool"]["misses"]
    found = ask(tiny_server, one_click())
    assert found["problems"] == []
    assert found["estimate"].keys() == {
        "plan",
        "fits",
        "requiredVramMb",
        "totalVramMb",
        "freeVramMb",
        "freeRamMb",
        "warning",
    }
    assert (found["estimate"]["plan"], found["estimate"]["fits"]) == ("resident", True)
    (job,) = found["nodes"]["m"]
    assert (job["width"], job["height"]) == (128, 64)
    assert job["requiredBytes"] == max(job["phases"].values())
    assert [part["role"] for part in job["components"]] == ["model", "text_encoder", "vae"]
    assert {part["name"] for part in job["components"]} == {
        "z.safetensors",
        "qwen",
        "ae.safetensors",
    }
    assert all(part["reason"] for part in job["components"])
    assert tiny_server.services.render.stats()["pool"]["misses"] == misses  # nothing was loaded


def test_one_click_and_primitives_are_estimated_alike(tiny_server: LiveServer) -> None:
    click = ask(tiny_server, one_click(guidance=2.0))["nodes"]["m"]
    parts = ask(tiny_server, primitives(cfg=3.0), target=False)["nodes"]["s"]
    assert click == parts
    assert (
        click[0]["phases"]["denoise"]
        > ask(tiny_server, one_click())["nodes"]["m"][0]["phases"]["denoise"]
    )


def test_a_bigger_picture_needs_more_and_a_huge_one_does_not_fit(
    tiny_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ask(tiny_server, one_click())["estimate"]["requiredVramMb"]
    large = ask(tiny_server, one_click(width=2048, height=2048))["estimate"]["requiredVramMb"]
    assert large > 10 * small
    policy = tiny_server.services.render.policy
    monkeypatch.setattr(policy, "_machine", Machine("cpu", "small", 2 * GIB))
    huge = one_click(width=4096, height=4096)
    found = ask(tiny_server, huge)["estimate"]
    assert (found["plan"], found["fits"]) == ("wont-fit", False)
    assert "GB" in found["warning"]
    ended = tiny_server.submit(*huge, wait=50).json()
    assert (ended["status"], ended["error"]["code"]) == ("error", "does_not_fit")
    assert ended["error"]["nodeId"] == "m"
    assert "z.safetensors at 4096x4096 needs" in ended["error"]["message"]
    monkeypatch.undo()
    assert run(tiny_server, one_click(seed=99))["status"] == "done"


def test_the_plan_of_another_machine(
    tiny_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Gpu(0, "card", 24 * GIB, 24 * GIB, (8, 6))
    policy = tiny_server.services.render.policy
    monkeypatch.setattr(policy, "_machine", Machine("cuda", "card", 64 * GIB, (card,)))
    found = ask(tiny_server, one_click())
    assert found["estimate"]["totalVramMb"] == 24 * 1024
    assert {part["device"] for part in found["nodes"]["m"][0]["components"]} == {"cuda:0"}


def test_what_cannot_be_estimated_is_named(tiny_server: LiveServer) -> None:
    asset = {"ref": "asset", "id": "asset_0000000000000000"}
    source = {"id": "i", "type": "input/image", "params": {"asset": asset}}
    found = ask(tiny_server, one_click({"image": {"from": "i", "output": "image"}}, [source]))
    assert found["estimate"] is None
    (problem,) = found["problems"]
    assert (problem["code"], problem["nodeId"]) == ("invalid_asset", "i")
    reply = tiny_server.http.post("/v1/estimate", json={"graph": {"schemaVersion": 1, "nodes": 3}})
    assert reply.status_code == 422
    assert tiny_server.http.post("/v1/estimate", json=[]).status_code == 422
    body = {"graph": {"schemaVersion": 1, "nodes": [{}]}, "target": 116}
    reply = tiny_server.http.post("/v1/estimate", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid_request")


def test_the_descriptor_tells_whether_the_default_fits(tiny_server: LiveServer) -> None:
    found = tiny_server.http.get("/v1/models/alibaba/z-image-turbo").json()
    assert found["estimate"]["plan"] == "resident"
    assert "estimate" not in tiny_server.http.get("/v1/models/load/vae").json()


def test_freeing_gives_the_models_back(tiny_server: LiveServer) -> None:
    first = run(tiny_server, one_click(seed=5))
    before = tiny_server.services.render.stats()
    assert before["pool"]["bytesHeld"] > 0
    assert before["prompts"]["held"] > 0
    freed = tiny_server.http.post("/v1/memory/free").json()
    assert freed["bytesBefore"] == before["pool"]["bytesHeld"]
    assert freed["bytesAfter"] == 0
    assert freed["residentAfter"] > 0
    after = tiny_server.http.get("/v1/health").json()["models"]
    assert after["pool"]["evictionReasons"]["asked"] == before["pool"]["evictionReasons"].get(
        "asked", 0
    ) + len(before["pool"]["held"])
    assert after["prompts"]["held"] == 0
    again = run(tiny_server, one_click(seed=5), force=True)
    assert np.array_equal(
        pixels(tiny_server, again["takes"][0]), pixels(tiny_server, first["takes"][0])
    )


def test_metrics_show_hits_misses_and_evictions(tiny_server: LiveServer) -> None:
    run(tiny_server, one_click(seed=6))
    text = tiny_server.http.get("/metrics").text
    for name in ("pool_hits", "pool_misses", "pool_evictions", "pool_bytesHeld", "prompts_hits"):
        assert f"inline_render_{name} " in text
