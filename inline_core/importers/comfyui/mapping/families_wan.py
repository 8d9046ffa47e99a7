"""Nodes of Wan Fun: control videos and cameras."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inline_core.importers.comfyui.mapping.families import WAN_FPS, check_vision, empty_video
from inline_core.importers.comfyui.mapping.step import (
    Entry,
    Outputs,
    Step,
    Unsupported,
    chosen,
)
from inline_core.importers.comfyui.mapping.values import Constant, Value

_MOTIONS: Final = {
    "Static": "static",
    "Pan Up": "up",
    "Pan Down": "down",
    "Pan Left": "left",
    "Pan Right": "right",
    "Zoom In": "in",
    "Zoom Out": "out",
    "Anti Clockwise (ACW)": "anticlockwise",
    "ClockWise (CW)": "clockwise",
}
_LENS: Final = ("speed", "fx", "fy", "cx", "cy")
_SIZE: Final = ("width", "height", "length")


@dataclass(frozen=True, slots=True)
class CameraPath:
    """A WAN_CAMERA_EMBEDDING: the params of our node, and the size that it was made for."""

    params: Mapping[str, Value | None]
    size: Mapping[str, Value | None]


def camera_embedding(step: Step) -> Outputs:
    """WanCameraEmbedding: its settings, which count where the video gets its camera."""
    motion = step.taken("camera_pose", chosen(step, "camera_pose", _MOTIONS))
    params = {"motion": motion, **{name: step.value(name) for name in _LENS}}
    size = {name: step.value(name) for name in _SIZE}
    return [Constant(CameraPath(params, size)), *size.values()]


def camera_video(step: Step) -> Outputs:
    """WanCameraImageToVideo: a first frame, and where the camera goes from there."""
    first = step.value("start_image")
    _check_vision(step, first)
    path = step.constant("camera_conditions")
    if path is None:
        message = "its camera_conditions are not connected: connect a WanCameraEmbedding"
        raise Unsupported(message)
    if not isinstance(path, CameraPath):
        message = "its camera_conditions are none of a WanCameraEmbedding"
        raise Unsupported(message)
    if any(path.size[name] != step.value(name) for name in _SIZE):
        step.warn("the camera is that of this video's size and length, not of another one")
    inputs = {**_shared(step), "first": first, **path.params}
    added = step.add("conditioning/camera", inputs)
    return [added.out("positive"), added.out("negative"), inputs["latent"]]


def fun_control(step: Step) -> Outputs:
    """WanFunControlToVideo: a video to go by, and a first frame."""
    first = step.value("start_image")
    _check_vision(step, first)
    return _control(step, {"first": first})


def fun_control_22(step: Step) -> Outputs:
    """Wan22FunControlToVideo: a video to go by, and a picture of what is to be seen."""
    return _control(step, {"image": step.value("ref_image")})


def _control(step: Step, pictures: Mapping[str, Value | None]) -> Outputs:
    inputs = {**_shared(step), "video": [step.needed("control_video")], **pictures}
    added = step.add("conditioning/fun-control", inputs)
    return [added.out("positive"), added.out("negative"), inputs["latent"]]


def _check_vision(step: Step, first: Value | None) -> None:
    """Say where CLIP was to be shown something else than the first frame."""
    if first is None and step.value("clip_vision_output") is not None:
        step.warn("CLIP is shown no picture here where there is no first frame")
    elif first is not None:
        check_vision(step, "clip_vision_output", first)


def _shared(step: Step) -> dict[str, Any]:
    return {
        "positive": step.needed("positive"),
        "negative": step.needed("negative"),
        "vae": step.needed("vae"),
        "latent": empty_video(step, WAN_FPS),
    }


ENTRIES: Final[Mapping[str, Entry]] = {
    "WanFunControlToVideo": fun_control,
    "Wan22FunControlToVideo": fun_control_22,
    "WanCameraEmbedding": camera_embedding,
    "WanCameraImageToVideo": camera_video,
}
