"""Sampling over the wire: split schedules, masks, patches of the model, many runs at once."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from inline_core.sampling.solvers import SOLVERS
from tests.live import LiveServer, live_server
from tests.unit.server.test_zimage_runs import edge, one_click, pixels, primitives, run

Graph = tuple[list[dict[str, Any]], str]


def changed(graph: Graph, *nodes: dict[str, Any], **of_node: dict[str, Any]) -> Graph:
    """The graph with more nodes, and with other inputs or params of those that are named."""
    found = []
    for node in graph[0]:
        change = of_node.get(node["id"], {})
        inputs = {**node.get("inputs", {}), **change.get("inputs", {})}
        params = {**node.get("params", {}), **change.get("params", {})}
        new = {**node, **({"type": change["type"]} if "type" in change else {})}
        found.append({**new, "inputs": inputs, "params": params})
    return [*found, *nodes], graph[1]


def patched(type_: str, **params: Any) -> Graph:
    node = {
        "id": "patch",
        "type": type_,
        "params": params,
        "inputs": {"model": edge("model", "model")},
    }
    base = primitives(cfg=3.0, negative="blue", steps=6)
    return changed(base, node, s={"inputs": {"model": edge("patch", "model")}})


@pytest.mark.parametrize(
    ("type_", "params"),
    [
        ("model/shift", {"shift": 1.0}),
        ("model/flux-shift", {}),
        ("guidance/rescale", {"multiplier": 1.0}),
        ("guidance/normalise", {"strength": 0.8}),
        ("guidance/interval", {"cfg": 1.0, "start_percent": 0.3, "end_percent": 1.0}),
        ("guidance/skip-layers", {"layers": "0, 1", "end_percent": 1.0}),
        ("model/step-cache", {"threshold": 1.0}),
    ],
)
def test_patches_change_the_picture_and_are_told(
    tiny_server: LiveServer, type_: str, params: dict[str, Any]
) -> None:
    plain = run(tiny_server, primitives(cfg=3.0, negative="blue", steps=6))
    other = run(tiny_server, patched(type_, **params))
    first, second = plain["takes"][0], other["takes"][0]
    assert not np.array_equal(pixels(tiny_server, first), pixels(tiny_server, second))
    assert len(second["provenance"]["patches"]) == 1
    assert "patches" not in first["provenance"]
    again = run(tiny_server, patched(type_, **params), force=True)
    assert np.array_equal(pixels(tiny_server, second), pixels(tiny_server, again["takes"][0]))


@pytest.mark.parametrize(
    ("type_", "params", "message"),
    [
        ("guidance/skip-layers", {"layers": "1, x"}, "'x' is no number of a block"),
        ("guidance/interval", {"start_percent": 0.5, "end_percent": 0.5}, "is not before end"),
    ],
)
def test_patches_that_make_no_sense(
    tiny_server: LiveServer, type_: str, params: dict[str, Any], message: str
) -> None:
    found = tiny_server.submit(*patched(type_, **params), wait=50).json()
    assert found["status"] == "error"
    assert message in found["error"]["message"]
    assert found["error"]["nodeId"] == "patch"


def test_a_split_schedule_gives_the_same_picture(tiny_server: LiveServer) -> None:
    whole = run(tiny_server, primitives(steps=8))
    schedule = {
        "id": "sigmas",
        "type": "sigmas/schedule",
        "params": {"steps": 8},
        "inputs": {"model": edge("model", "model")},
    }
    split = {
        "id": "split",
        "type": "sigmas/split",
        "params": {"step": 3},
        "inputs": {"sigmas": edge("sigmas", "sigmas")},
    }
    second = {
        "id": "s2",
        "type": "sample/advanced",
        "params": {"cfg": 1.0, "add_noise": False},
        "inputs": {
            "model": edge("model", "model"),
            "positive": edge("c", "conditioning"),
            "latent": edge("s", "latent"),
            "sigmas": edge("split", "low"),
        },
    }
    halves = changed(
        primitives(),
        schedule,
        split,
        second,
        s={"type": "sample/advanced", "inputs": {"sigmas": edge("split", "high")}},
        d={"inputs": {"latent": edge("s2", "latent")}},
    )
    two = run(tiny_server, halves)
    difference = np.abs(
        pixels(tiny_server, whole["takes"][0]).astype(int)
        - pixels(tiny_server, two["takes"][0]).astype(int)
    )
    assert difference.max() <= 1


def test_inpainting_keeps_what_is_not_masked(tiny_server: LiveServer) -> None:
    def upload(picture: Image.Image) -> dict[str, str]:
        buffer = io.BytesIO()
        picture.save(buffer, "PNG")
        asset = tiny_server.http.post("/v1/assets", content=buffer.getvalue()).json()["id"]
        return {"ref": "asset", "id": asset}

    source = upload(Image.new("RGB", (128, 64), (200, 30, 30)))
    encode = {
        "id": "e",
        "type": "vae/encode",
        "inputs": {"vae": edge("vae", "vae"), "image": edge("i", "image")},
    }
    masked = {
        "id": "l",
        "type": "latent/noise-mask",
        "inputs": {"latent": edge("e", "latent"), "mask": edge("k", "mask")},
    }

    def result(right_half: int, **sample: Any) -> dict[str, Any]:
        mask = Image.new("L", (128, 64), 0)
        mask.paste(right_half, (64, 0, 128, 64))
        inputs = [
            {"id": "i", "type": "input/image", "params": {"asset": source}},
            {"id": "k", "type": "input/mask", "params": {"asset": upload(mask)}},
            encode,
        ]
        return run(tiny_server, changed(primitives(masked, **sample), *inputs))

    def picture(of: dict[str, Any]) -> Any:
        return pixels(tiny_server, of["takes"][0]).astype(int)

    straight = picture(result(255, denoise=0.0))
    nothing, half = result(0), result(255)
    assert np.abs(picture(nothing) - straight).max() <= 1
    assert nothing["warnings"][0]["message"].startswith("The mask is empty")
    assert np.abs(picture(half) - straight)[:, 96:].mean() > 5
    assert half["takes"][0]["provenance"]["masked"] is True

    mask = Image.new("L", (128, 64), 0)
    mask.paste(255, (64, 0, 128, 64))
    inputs = [
        {"id": "i", "type": "input/image", "params": {"asset": source}},
        {"id": "k", "type": "input/mask", "params": {"asset": upload(mask)}},
    ]
    wires = {"image": edge("i", "image"), "mask": edge("k", "mask")}
    one = run(tiny_server, one_click(wires, inputs, strength=0.8))
    assert np.array_equal(picture(one), picture(result(255, denoise=0.8)))
    alone = tiny_server.submit(*one_click({"mask": wires["mask"]}, inputs), wait=50).json()
    assert alone["error"]["code"] == "invalid_param"
    assert "a mask needs a picture" in alone["error"]["message"]


def test_unknown_names_are_refused_with_the_list(tiny_server: LiveServer) -> None:
    for key in ("sampler", "scheduler"):
        wrong: dict[str, Any] = {key: "nope"}
        reply = tiny_server.submit(*primitives(**wrong))
        assert reply.status_code == 422
        assert "euler" in reply.text or "karras" in reply.text


def test_every_sampler_of_the_list_runs(tiny_server: LiveServer) -> None:
    for name in SOLVERS:
        found = run(tiny_server, primitives(sampler=name, steps=2, scheduler="karras"))
        assert found["takes"][0]["provenance"]["sampler"] == name


def test_many_runs_at_once_make_the_pictures_they_make_alone(
    tiny_server: LiveServer, tmp_path: Path
) -> None:
    draw = random.Random(4)
    graphs = [
        primitives(
            steps=draw.randint(2, 6),
            seed=draw.randrange(2**48),
            cfg=draw.choice([1.0, 4.0]),
            negative="blue",
            sampler=draw.choice(["euler", "dpmpp_2m_sde", "heun"]),
        )
        for _ in range(16)
    ]
    alone = [run(tiny_server, graph) for graph in graphs]
    settings = tiny_server.settings.model_copy(update={"walkers": 16, "data_dir": tmp_path})
    with live_server(settings) as crowd:
        crowd.http.post("/v1/queue/pause")
        ids = [
            crowd.submit(*graph, priority=draw.choice([0, 5])).json()["runId"] for graph in graphs
        ]
        crowd.http.post("/v1/queue/resume")
        together = [crowd.wait_until_final(run_id) for run_id in ids]
        for one, other in zip(alone, together, strict=True):
            first, second = one["takes"][0], other["takes"][0]
            left, right = pixels(tiny_server, first), pixels(crowd, second)
            assert np.abs(left.astype(int) - right.astype(int)).max() <= 1
        assert max(entry["takes"][0]["provenance"]["batch"] for entry in together) > 2
        text = crowd.http.get("/metrics").text
        assert "inline_render_sampler_rowsPerForward" in text
        assert 'inline_sampler_row_seconds{kind="' in text
