"""Prompts that are converted and run over the real server, and what comes out of them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from tests.live import LiveServer
from tests.unit.importers.comfyui.mapping.prompts import Prompt, converted, step
from tests.unit.nodes.pictures import Pixels, cutout, scene


def run(server: LiveServer, prompt: Prompt, **pictures: Pixels) -> dict[str, Any]:
    """The finished run of a prompt; `pictures` are those that its `LoadImage` nodes read."""
    result = converted(prompt)
    nodes = {node["id"]: node for node in result.graph["nodes"]}
    for name, pixels in pictures.items():
        buffer = io.BytesIO()
        PillowImage.fromarray(pixels).save(buffer, "PNG")
        asset = server.http.post("/v1/assets", content=buffer.getvalue()).json()["id"]
        nodes[name]["params"] = {"asset": {"ref": "asset", "id": asset}}
    body = {"graph": result.graph, "targets": list(result.targets)}
    answer = server.http.post("/v1/runs", json=body, params={"wait": 30}).json()
    assert answer.get("status") == "done", answer
    found: dict[str, Any] = answer
    return found


def pictures_of(server: LiveServer, answer: dict[str, Any], node_id: str) -> list[Pixels]:
    takes = [take for take in answer["takes"] if take["nodeId"] == node_id]
    data = [server.http.get(f"/v1/{take['uri']}").content for take in takes]
    return [np.asarray(PillowImage.open(io.BytesIO(one))) for one in data]


def test_sizes_are_computed_while_a_graph_runs(server: LiveServer) -> None:
    prompt = {
        "i": step("LoadImage", image="a.png"),
        "z": step("GetImageSize", image=["i", 0]),
        "m": step("ComfyMathExpression", expression="(a + b) // 3", values__a=["z", 0],
                  values__b=["z", 1]),
        "w": step("ComfySwitchNode", switch=["m", 2], on_false=8, on_true=["m", 1]),
        "r": step("ImageScale", image=["i", 0], upscale_method="area", width=["w", 0],
                  height=["z", 1], crop="disabled"),
        "k": step("MaskToImage", mask=["i", 1]),
        "b": step("BatchImagesNode", images__image0=["r", 0], images__image1=["k", 0]),
        "f": step("ImageFromBatch", image=["b", 0], batch_index=-1, length=9),
        "s": step("SaveImage", images=["b", 0], filename_prefix="x"),
        "p": step("PreviewImage", images=["f", 0]),
        "t": step("PreviewAny", source=["m", 0]),
    }  # fmt: skip
    picture = cutout(64, 48).pixels
    answer = run(server, prompt, i=picture)
    assert {take["nodeId"] for take in answer["takes"]} == {"s", "p"}
    first, second = pictures_of(server, answer, "s")
    assert first.shape == second.shape == (48, 37, 3)
    assert second.max() > 250
    (shown,) = pictures_of(server, answer, "p")
    assert np.array_equal(shown, second)


def test_a_mask_is_where_a_picture_is_transparent(server: LiveServer) -> None:
    prompt = {
        "i": step("LoadImage", image="a.png"),
        "o": step("LoadImage", image="b.png"),
        "s": step("MaskPreview", mask=["i", 1]),
        "p": step("MaskPreview", mask=["o", 1]),
        "c": step("SaveImage", images=["i", 0]),
    }
    picture = cutout(64, 48).pixels
    answer = run(server, prompt, i=picture, o=scene().pixels)
    (mask,) = pictures_of(server, answer, "s")
    assert np.array_equal(mask[..., 0], 255 - picture[..., 3])
    (nothing,) = pictures_of(server, answer, "p")
    assert not nothing.any()
    (opaque,) = pictures_of(server, answer, "c")
    assert np.array_equal(opaque, picture[..., :3])
    assert not answer.get("warnings")


def test_a_video_goes_apart_and_together(server: LiveServer) -> None:
    prompt = {
        "i": step("LoadImage", image="a.png"),
        "r": step("RepeatImageBatch", image=["i", 0], amount=12),
        "a": step("EmptyAudio", duration=0.5, sample_rate=48_000, channels=2),
        "v": step("CreateVideo", images=["r", 0], audio=["a", 0], fps=24),
        "n": step("Video Slice", video=["v", 0], start_time=-0.25, duration=0.0),
        "c": step("GetVideoComponents", video=["n", 0]),
        "w": step("CreateVideo", images=["c", 0], audio=["c", 1], fps=["c", 2]),
        "s": step("SaveVideo", video=["w", 0], filename_prefix="video/x"),
        "t": step("TrimAudioDuration", audio=["c", 1], start_index=-0.125, duration=9),
        "q": step("SaveAudio", audio=["t", 0]),
    }
    answer = run(server, prompt, i=scene(64, 48).pixels)
    takes = {take["nodeId"]: take for take in answer["takes"]}
    assert set(takes) == {"s", "q"}
    assert (takes["s"]["width"], takes["s"]["height"], takes["s"]["fps"]) == (64, 48, 24)
    assert abs(takes["s"]["durationMs"] - 250) <= 1
    assert abs(takes["q"]["durationMs"] - 125) <= 1
