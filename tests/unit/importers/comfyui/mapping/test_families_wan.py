"""Nodes of Wan Fun: what they become, with which values."""

from __future__ import annotations

from typing import Any

import pytest

from inline_core.importers.comfyui.converting import NodeState
from tests.unit.importers.comfyui.mapping.prompts import converted, nodes_of, report_of, step

SIZE = {"width": 640, "height": 480, "length": 33}


def prompt(kind: str, **inputs: Any) -> dict[str, Any]:
    """A node of Wan from its loaders to a video, with two pictures and frames at hand."""
    shared = {"positive": ["p", 0], "negative": ["n", 0], "vae": ["v", 0], "batch_size": 2}
    return {
        "m": step("UNETLoader", unet_name="m.safetensors", weight_dtype="default"),
        "c": step("CLIPLoader", clip_name="m.safetensors", type="wan", device="default"),
        "v": step("VAELoader", vae_name="m.safetensors"),
        "p": step("CLIPTextEncode", text="red", clip=["c", 0]),
        "n": step("CLIPTextEncode", text="blue", clip=["c", 0]),
        "i": step("LoadImage", image="a.png"),
        "j": step("LoadImage", image="b.png"),
        "f": step("LoadVideo", file="a.mp4"),
        "g": step("GetVideoComponents", video=["f", 0]),
        "w": step("CLIPVisionLoader", clip_name="m.safetensors"),
        "x": step("CLIPVisionEncode", clip_vision=["w", 0], image=["i", 0], crop="none"),
        "a": step("WanCameraEmbedding", camera_pose="Pan Left", speed=1.5, **SIZE),
        "e": step(kind, **{**shared, **SIZE, **inputs}),
        "k": step(
            "KSampler",
            model=["m", 0],
            positive=["e", 0],
            negative=["e", 1],
            latent_image=["e", 2],
            seed=1,
            steps=2,
            cfg=1.0,
            sampler_name="euler",
            scheduler="simple",
            denoise=1.0,
        ),
        "d": step("VAEDecode", samples=["k", 0], vae=["v", 0]),
        "s": step("SaveImage", images=["d", 0], filename_prefix="x"),
    }


LATENT = {
    "type": "latent/empty-video",
    "width": 640,
    "height": 480,
    "frames": 33,
    "batch": 2,
    "fps": 16.0,
}
LED: dict[str, Any] = {
    "positive": "p.conditioning",
    "negative": "n.conditioning",
    "vae": "v.vae",
    "latent": "e/latent.latent",
}


def sampled(nodes: dict[str, dict[str, Any]]) -> list[str]:
    return [nodes["k"][name] for name in ("positive", "negative", "latent")]


@pytest.mark.parametrize(
    ("kind", "inputs", "wanted"),
    [
        ("WanFunControlToVideo", {}, {}),
        ("WanFunControlToVideo", {"start_image": ["i", 0]}, {"first": "i/parts.image"}),
        (
            "WanFunControlToVideo",
            {"start_image": ["i", 0], "clip_vision_output": ["x", 0]},
            {"first": "i/parts.image"},
        ),
        ("Wan22FunControlToVideo", {}, {}),
        ("Wan22FunControlToVideo", {"ref_image": ["j", 0]}, {"image": "j/parts.image"}),
    ],
)
def test_control_videos(kind: str, inputs: dict[str, Any], wanted: dict[str, Any]) -> None:
    result = converted(prompt(kind, control_video=["g", 0], **inputs))
    nodes = nodes_of(result)
    video = nodes["e"].pop("video")
    assert nodes["e"] == {"type": "conditioning/fun-control", **LED, **wanted}
    assert [edge.partition(".")[0].partition("/")[0] for edge in video] == ["g"]
    assert nodes["e/latent"] == LATENT
    assert sampled(nodes) == ["e.positive", "e.negative", "e/latent.latent"]
    assert not report_of(result, "e").warnings


@pytest.mark.parametrize(
    ("pose", "motion"),
    [
        ("Static", "static"),
        ("Pan Up", "up"),
        ("Pan Down", "down"),
        ("Pan Left", "left"),
        ("Pan Right", "right"),
        ("Zoom In", "in"),
        ("Zoom Out", "out"),
        ("Anti Clockwise (ACW)", "anticlockwise"),
        ("ClockWise (CW)", "clockwise"),
    ],
)
def test_cameras(pose: str, motion: str) -> None:
    path = step(
        "WanCameraEmbedding", camera_pose=pose, speed=2.5, fx=0.4, fy=0.3, cx=0.6, cy=0.7, **SIZE
    )
    wired = {"width": ["a", 1], "height": ["a", 2], "length": ["a", 3]}
    made = prompt(
        "WanCameraImageToVideo", start_image=["i", 0], camera_conditions=["a", 0], **wired
    )
    result = converted({**made, "a": path})
    nodes = nodes_of(result)
    assert nodes["e"] == {
        "type": "conditioning/camera", **LED, "first": "i/parts.image", "motion": motion, "speed": 2.5,
        "fx": 0.4, "fy": 0.3, "cx": 0.6, "cy": 0.7,
    }  # fmt: skip
    assert nodes["e/latent"] == LATENT
    assert sampled(nodes) == ["e.positive", "e.negative", "e/latent.latent"]
    assert not report_of(result, "e").warnings


def test_a_camera_of_another_size_is_said() -> None:
    made = prompt("WanCameraImageToVideo", camera_conditions=["a", 0], length=17)
    result = converted(made)
    assert nodes_of(result)["e/latent"]["frames"] == 17
    assert nodes_of(result)["e"]["speed"] == 1.5
    assert "first" not in nodes_of(result)["e"]
    warned = ("the camera is that of this video's size and length, not of another one",)
    assert report_of(result, "e").warnings == warned


def test_clip_is_shown_the_first_frame_itself() -> None:
    inputs = {"start_image": ["j", 0], "clip_vision_output": ["x", 0]}
    for kind, more in (
        ("WanFunControlToVideo", {"control_video": ["g", 0]}),
        ("WanCameraImageToVideo", {"camera_conditions": ["a", 0]}),
    ):
        result = converted(prompt(kind, **inputs, **more))
        warned = ("CLIP is shown the frame itself, not another picture",)
        assert report_of(result, "e").warnings == warned
        alone = converted(prompt(kind, clip_vision_output=["x", 0], **more))
        warned = ("CLIP is shown no picture here where there is no first frame",)
        assert report_of(alone, "e").warnings == warned


@pytest.mark.parametrize(
    ("kind", "inputs", "why"),
    [
        ("WanFunControlToVideo", {}, "its input 'control_video' is not connected"),
        ("Wan22FunControlToVideo", {}, "its input 'control_video' is not connected"),
        ("WanCameraImageToVideo", {}, "connect a WanCameraEmbedding"),
        ("WanCameraImageToVideo", {"camera_conditions": 3}, "none of a WanCameraEmbedding"),
    ],
)
def test_what_is_missing_is_named(kind: str, inputs: dict[str, Any], why: str) -> None:
    report = report_of(converted(prompt(kind, **inputs)), "e")
    assert report.state is NodeState.UNSUPPORTED
    assert why in report.reason


def test_an_unknown_move_is_named() -> None:
    path = step("WanCameraEmbedding", camera_pose="Sideways", **SIZE)
    result = converted({**prompt("WanCameraImageToVideo", camera_conditions=["a", 0]), "a": path})
    assert "Pan Left" in report_of(result, "a").reason
