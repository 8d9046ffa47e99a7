"""Masks, files that come in, and what is saved or shown."""

from __future__ import annotations

from typing import Any

import pytest

from inline_core.importers.comfyui.converting import NodeState
from tests.unit.importers.comfyui.mapping.prompts import (
    converted,
    nodes_of,
    report_of,
    step,
)

MASK, OTHER = "i/parts.mask", "j/parts.mask"
LOADED = {
    "i": step("LoadImage", image="a.png"),
    "j": step("LoadImage", image="b.png"),
    "v": step("LoadVideo", file="a.mp4"),
    "a": step("LoadAudio", audio="a.flac"),
    "b": step("LoadAudio", audio="b.flac"),
}


@pytest.mark.parametrize(
    ("kind", "inputs", "wanted"),
    [
        ("SolidMask", {"value": 0.5, "width": 8, "height": 4},
         {"type": "mask/solid", "value": 0.5, "width": 8, "height": 4}),
        ("InvertMask", {"mask": ["i", 1]}, {"type": "mask/invert", "mask": MASK}),
        ("GrowMask", {"mask": ["i", 1], "expand": -3, "tapered_corners": False},
         {"type": "mask/grow", "mask": MASK, "expand": -3, "tapered_corners": False}),
        ("FeatherMask", {"mask": ["i", 1], "left": 1, "top": 2, "right": 3, "bottom": 4},
         {"type": "mask/feather", "mask": MASK, "left": 1, "top": 2, "right": 3, "bottom": 4}),
        ("ThresholdMask", {"mask": ["i", 1], "value": 0.25},
         {"type": "mask/threshold", "mask": MASK, "value": 0.25}),
        ("MaskComposite", {"destination": ["i", 1], "source": ["j", 1], "x": 1, "y": 2,
                           "operation": "xor"},
         {"type": "mask/combine", "destination": MASK, "source": OTHER, "x": 1, "y": 2,
          "operation": "xor"}),
        ("CropMask", {"mask": ["i", 1], "x": 1, "y": 2, "width": 3, "height": 4},
         {"type": "mask/crop", "mask": MASK, "x": 1, "y": 2, "width": 3, "height": 4,
          "clip": True}),
        ("ImageToMask", {"image": ["i", 0], "channel": "blue"},
         {"type": "mask/from-channel", "image": "i/parts.image", "channel": "blue"}),
        ("ImageColorToMask", {"image": ["i", 0], "color": 255},
         {"type": "mask/from-colour", "image": "i/parts.image", "colour": "#0000ff",
          "tolerance": 0}),
    ],
)  # fmt: skip
def test_masks(kind: str, inputs: dict[str, Any], wanted: dict[str, Any]) -> None:
    prompt = LOADED | {"n": step(kind, **inputs), "s": step("MaskPreview", mask=["n", 0])}
    result = converted(prompt)
    nodes = nodes_of(result)
    assert nodes["n"] == wanted
    assert nodes["s/grey"] == {"type": "mask/to-image", "mask": "n.mask"}
    assert nodes["s"] == {"type": "output/image", "image": "s/grey.image", "preview": True}
    assert result.targets == ("s",)


def test_a_shown_mask_is_given_on() -> None:
    prompt = LOADED | {
        "p": step("MaskPreview", mask=["i", 1]),
        "s": step("MaskPreview", mask=["p", 0]),
    }
    assert nodes_of(converted(prompt))["s/grey"]["mask"] == MASK


def test_a_picture_is_read_without_alpha_and_with_the_mask_of_it() -> None:
    prompt = LOADED | {
        "s": step("SaveImage", images=["i", 0], filename_prefix="x"),
        "r": step("PreviewImage", images=["s", 0]),
        "w": step("SaveImageWebsocket", images=["r", 0]),
    }
    result = converted(prompt)
    nodes = nodes_of(result)
    assert nodes == {
        "i": {"type": "input/image", "asset": {"ref": "input", "name": "a.png"}},
        "i/parts": {"type": "image/split-alpha", "image": "i.image", "invert": True, "quiet": True},
        "s": {"type": "output/image", "image": "i/parts.image", "filename_prefix": "x"},
        "r": {"type": "output/image", "image": "s.image", "preview": True},
        "w": {"type": "output/image", "image": "r.image", "preview": True},
    }
    assert result.targets == ("s", "r", "w")
    kept = {node["id"]: node.get("keep", True) for node in result.graph["nodes"]}
    assert kept == {"i": True, "i/parts": False, "s": True, "r": True, "w": True}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a.png", {"ref": "input", "name": "a.png"}),
        ("sub\\a b.png", {"ref": "input", "name": "sub/a b.png"}),
        ("a.png [input]", {"ref": "input", "name": "a.png"}),
        ("painter/p.png [temp]", {"ref": "input", "name": "painter/p.png"}),
        ("x_take_0123456789ab_.png [output]", {"ref": "take", "id": "take_0123456789ab"}),
        ("take_0123456789ab.png [temp]", {"ref": "take", "id": "take_0123456789ab"}),
        ("take_0123456789ab.png", {"ref": "input", "name": "take_0123456789ab.png"}),
        ("clipspace/a.png [output]", None),
        ("", None),
        (7, None),
    ],
)
def test_names_of_files(name: Any, wanted: dict[str, str] | None) -> None:
    prompt = {"i": step("LoadImage", image=name), "s": step("SaveImage", images=["i", 0])}
    result = converted(prompt)
    if wanted is None:
        assert report_of(result, "i").state is NodeState.UNSUPPORTED
    else:
        assert nodes_of(result)["i"]["asset"] == wanted


def test_masks_of_files() -> None:
    for channel, wanted in (("alpha", "m/parts.mask"), ("red", "m/mask.mask")):
        prompt = {
            "m": step("LoadImageMask", image="a.png", channel=channel),
            "s": step("MaskPreview", mask=["m", 0]),
        }
        nodes = nodes_of(converted(prompt))
        assert nodes["s/grey"]["mask"] == wanted
    assert nodes["m/mask"]["channel"] == "red"
    moving = {"i": step("LoadImage", image="a.GIF"), "s": step("SaveImage", images=["i", 0])}
    assert "only the first" in report_of(converted(moving), "i").warnings[0]


def test_a_video_is_made_and_saved() -> None:
    prompt = LOADED | {
        "c": step("GetVideoComponents", video=["v", 0]),
        "n": step("CreateVideo", images=["c", 0], audio=["c", 1], fps=["c", 2], bit_depth=["c", 3],
                  color_space=["c", 4]),
        "s": step("SaveVideo", video=["n", 0], filename_prefix="video/x", format="auto",
                  format__codec="auto", codec="auto"),
        "t": step("SaveVideo", video=["s", 0], filename_prefix="y", format="mp4",
                  format__codec="h264"),
    }  # fmt: skip
    result = converted(prompt)
    nodes = nodes_of(result)
    assert nodes["v"] == {"type": "input/video", "asset": {"ref": "input", "name": "a.mp4"}}
    assert nodes["c"] == {"type": "video/components", "video": "v.video"}
    assert nodes["c/info"] == {"type": "video/info", "video": "v.video"}
    assert nodes["n"] == {
        "type": "video/make", "images": ["c.images"], "audio": "c.audio", "fps": "c/info.fps",
    }  # fmt: skip
    assert nodes["s"] == {"type": "output/video", "video": "n.video", "filename_prefix": "video/x"}
    assert nodes["t"]["video"] == "s.video"
    assert result.targets == ("s", "t")
    assert not any(report.warnings for report in result.nodes)


@pytest.mark.parametrize(
    ("kind", "inputs", "said"),
    [
        ("CreateVideo", {"images": ["i", 0], "fps": 24, "bit_depth": 10}, "8 bits"),
        ("CreateVideo", {"images": ["i", 0], "fps": 24, "color_space": "HDR PQ"}, "sRGB"),
        ("SaveVideo", {"video": ["v", 0], "format": "webm", "format__codec": "av1"}, "H.264"),
        ("SaveVideo", {"video": ["v", 0], "format": "mp4", "format__codec": "av1"}, "H.264"),
        ("SaveImageAdvanced", {"images": ["i", 0], "format": "exr"}, "PNG"),
        ("SaveImageAdvanced", {"images": ["i", 0], "format__bit_depth": "16-bit"}, "8 bits"),
        ("SaveImageAdvanced", {"images": ["i", 0], "format": "exr",
                               "format__input_color_space": "HDR"}, "PNG"),
        ("SaveAudioMP3", {"audio": ["a", 0]}, "without loss"),
        ("SaveAudioOpus", {"audio": ["a", 0]}, "without loss"),
        ("SaveAudioAdvanced", {"audio": ["a", 0], "format": "opus"}, "without loss"),
        ("Video Slice", {"video": ["v", 0], "strict_duration": True}, "what there is"),
        ("AudioAdjustVolume", {"audio": ["a", 0], "volume": -90}, "60 dB"),
    ],
)  # fmt: skip
def test_what_differs_is_said(kind: str, inputs: dict[str, Any], said: str) -> None:
    warnings = report_of(converted(LOADED | {"n": step(kind, **inputs)}), "n").warnings
    assert any(said in warning for warning in warnings)


def test_what_is_saved_as_it_is() -> None:
    prompt = LOADED | {
        "x": step("SaveImageAdvanced", images=["i", 0], filename_prefix="p", format="png",
                  format__bit_depth="8-bit", format__input_color_space="sRGB"),
        "y": step("SaveAudio", audio=["a", 0], filename_prefix="q"),
        "z": step("SaveAudioAdvanced", audio=["y", 0], filename_prefix="r", format="flac"),
        "w": step("PreviewAudio", audio=["z", 0]),
    }  # fmt: skip
    result = converted(prompt)
    nodes = nodes_of(result)
    assert not any(report.warnings for report in result.nodes)
    assert nodes["x"] == {
        "type": "output/image", "image": "i/parts.image", "filename_prefix": "p",
    }  # fmt: skip
    assert nodes["y"] == {"type": "output/audio", "audio": "a.audio", "filename_prefix": "q"}
    assert nodes["z"]["audio"] == "y.audio"
    assert nodes["w"] == {"type": "output/audio", "audio": "z.audio", "preview": True}


@pytest.mark.parametrize("kind", ["SaveAnimatedWEBP", "SaveAnimatedPNG", "SaveWEBM"])
def test_moving_pictures_become_videos(kind: str) -> None:
    prompt = LOADED | {"n": step(kind, images=["i", 0], filename_prefix="p", fps=6.0)}
    result = converted(prompt)
    nodes = nodes_of(result)
    assert nodes["n/video"] == {"type": "video/make", "images": ["i/parts.image"], "fps": 6.0}
    assert nodes["n"] == {"type": "output/video", "video": "n/video.video", "filename_prefix": "p"}
    assert "mp4" in report_of(result, "n").warnings[0]


@pytest.mark.parametrize(
    ("kind", "inputs", "wanted"),
    [
        ("TrimAudioDuration", {"audio": ["a", 0], "start_index": 1.5, "duration": 2},
         {"type": "audio/trim", "audio": "a.audio", "start": 1.5, "duration": 2}),
        ("TrimAudioDuration", {"audio": ["a", 0], "start_index": -1.5, "duration": 2},
         {"type": "audio/trim", "audio": "a.audio", "start": "n/number.number", "duration": 2}),
        ("AudioConcat", {"audio1": ["a", 0], "audio2": ["b", 0], "direction": "after"},
         {"type": "audio/join", "first": "a.audio", "second": "b.audio"}),
        ("AudioConcat", {"audio1": ["a", 0], "audio2": ["b", 0], "direction": "before"},
         {"type": "audio/join", "first": "b.audio", "second": "a.audio"}),
        ("AudioMerge", {"audio1": ["a", 0], "audio2": ["b", 0], "merge_method": "mean"},
         {"type": "audio/mix", "first": "a.audio", "second": "b.audio", "method": "mean"}),
        ("AudioAdjustVolume", {"audio": ["a", 0], "volume": 6},
         {"type": "audio/gain", "audio": "a.audio", "decibels": 6.0}),
        ("EmptyAudio", {"duration": 2.5, "sample_rate": 48000, "channels": 1},
         {"type": "audio/silence", "duration": 2.5, "sample_rate": 48000, "channels": 1}),
        ("JoinAudioChannels", {"audio_left": ["a", 0], "audio_right": ["b", 0]},
         {"type": "audio/join-channels", "left": "a.audio", "right": "b.audio"}),
    ],
)  # fmt: skip
def test_sounds(kind: str, inputs: dict[str, Any], wanted: dict[str, Any]) -> None:
    prompt = LOADED | {"n": step(kind, **inputs), "s": step("SaveAudio", audio=["n", 0])}
    assert nodes_of(converted(prompt))["n"] == wanted


def test_times_from_the_end() -> None:
    prompt = LOADED | {
        "n": step("Video Slice", video=["v", 0], start_time=-2.5, duration=1.0),
        "s": step("SaveVideo", video=["n", 0]),
    }
    nodes = nodes_of(converted(prompt))
    assert nodes["n"] == {
        "type": "video/slice", "video": "v.video", "start": "n/number.number", "duration": 1.0,
    }  # fmt: skip
    assert nodes["n/number"] == {
        "type": "number/expression", "expression": "a if a >= 0 else max(a + d, 0)", "a": -2.5,
        "d": "n/info.duration",
    }  # fmt: skip
    assert nodes["n/info"] == {"type": "video/info", "video": "v.video"}


def test_two_channels_apart() -> None:
    prompt = LOADED | {
        "n": step("SplitAudioChannels", audio=["a", 0]),
        "s": step("SaveAudio", audio=["n", 1]),
    }
    assert nodes_of(converted(prompt))["s"]["audio"] == "n.right"


def test_a_painting() -> None:
    same = {"width": 64, "height": 32, "bg_color": "#102030"}
    saved = {"s": step("SaveImage", images=["n", 0]), "m": step("MaskPreview", mask=["n", 1])}
    empty = nodes_of(converted({"n": step("Painter", mask="", **same)} | saved))
    assert empty["n/base"] == {
        "type": "image/solid", "width": 64, "height": 32, "colour": "#102030",
    }  # fmt: skip
    assert empty["n/mask"] == {
        "type": "mask/solid", "value": 0.0, "width": "n/size.width", "height": "n/size.height",
    }  # fmt: skip
    assert empty["s"]["image"] == "n/base.image"
    painted = step("Painter", mask="painter/p.png [temp]", image=["i", 0], **same)
    nodes = nodes_of(converted(LOADED | {"n": painted} | saved))
    assert nodes["n/painting"]["asset"] == {"ref": "input", "name": "painter/p.png"}
    assert nodes["n/fitted"]["match"] == "n/base.image"
    assert nodes["n/base"] == {
        "type": "image/from-batch", "image": "i/parts.image", "index": 0, "length": 1,
    }  # fmt: skip
    assert nodes["n"] == {
        "type": "image/composite", "destination": "n/base.image", "source": "n/fitted.image",
    }  # fmt: skip
    assert nodes["n/mask"] == {"type": "mask/from-alpha", "image": "n/fitted.image"}


def test_nothing_to_trim_is_told() -> None:
    prompt = LOADED | {
        "n": step("TrimAudioDuration", audio=["a", 0], start_index=0, duration=0),
        "s": step("SaveAudio", audio=["n", 0]),
    }
    assert "0 seconds" in report_of(converted(prompt), "n").reason
