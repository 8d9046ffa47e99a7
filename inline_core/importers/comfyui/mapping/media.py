"""Files that go in and out, videos and sounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from inline_core.importers.comfyui.mapping.computing import number
from inline_core.importers.comfyui.mapping.step import (
    Direct,
    Entry,
    Outputs,
    Step,
    Unsupported,
    chosen,
)
from inline_core.importers.comfyui.mapping.values import Constant, Value

_ANNOTATED: Final = re.compile(r"(.*?) ?\[(input|output|temp)\]", re.DOTALL)
_TAKE: Final = re.compile(r"take_[0-9a-f]{12}")
_MOVING: Final = (".gif", ".apng")
_QUIETEST_DB: Final = 60

# ---- files that come in --------------------------------------------------------------------------


def reference(step: Step, name: str) -> dict[str, str]:
    """The file that an input names, as our params name it: one of the input folder, or a take.

    Raises: Unsupported if it names none, or one of ComfyUI's output folder.
    """
    given = step.constant(name, "")
    if not isinstance(given, str) or not given.strip():
        message = f"no file is chosen for its {name!r}"
        raise Unsupported(message)
    plain = given.strip().replace("\\", "/")
    match = _ANNOTATED.fullmatch(plain)
    if match is None:
        return {"ref": "input", "name": plain}
    take = _TAKE.search(match[1])
    if match[2] != "input" and take is not None:
        return {"ref": "take", "id": take[0]}
    if match[2] == "output":
        message = f"it reads {match[1]!r} of ComfyUI's output folder, which is not here"
        raise Unsupported(message, "put the file into the input folder")
    return {"ref": "input", "name": match[1]}


def _picture(step: Step) -> Outputs:
    """A picture without its alpha, and a mask of what is transparent in it."""
    asset = reference(step, "image")
    if asset.get("name", "").lower().endswith(_MOVING):
        step.warn("of a moving picture only the first one is read")
    read = step.add("input/image", {"asset": asset})
    inputs = {"image": read.out("image"), "invert": True, "quiet": True}
    parts = step.add("image/split-alpha", inputs, suffix="parts")
    return [parts.out("image"), parts.out("mask")]


def _picture_mask(step: Step) -> Outputs:
    read = step.add("input/image", {"asset": reference(step, "image")})
    channel = step.constant("channel", "alpha")
    if channel == "alpha":
        inputs = {"image": read.out("image"), "invert": True, "quiet": True}
        return [step.add("image/split-alpha", inputs, suffix="parts").out("mask")]
    inputs = {"image": read.out("image"), "channel": channel}
    return [step.add("mask/from-channel", inputs, suffix="mask").out("mask")]


def _video_file(step: Step) -> Outputs:
    return [step.add("input/video", {"asset": reference(step, "file")}).out("video")]


def _audio_file(step: Step) -> Outputs:
    return [step.add("input/audio", {"asset": reference(step, "audio")}).out("audio")]


def _painter(step: Step) -> Outputs:
    """A picture, or a colour, with what was painted on it, and where that covers it."""
    image = step.value("image")
    inputs: dict[str, Any]
    if image is None:
        inputs = {name: step.value(name) for name in ("width", "height")}
        inputs["colour"] = step.value("bg_color")
        base = step.add("image/solid", inputs, suffix="base").out("image")
    else:
        first = {"image": image, "index": 0, "length": 1}
        base = step.add("image/from-batch", first, suffix="base").out("image")
    if not str(step.constant("mask", "") or "").strip():
        size = step.add("image/size", {"image": base}, suffix="size")
        inputs = {"value": 0.0, "width": size.out("width"), "height": size.out("height")}
        return [base, step.add("mask/solid", inputs, suffix="mask").out("mask")]
    read = step.add("input/image", {"asset": reference(step, "mask")}, suffix="painting")
    inputs = {"image": read.out("image"), "match": base, "by": "match", "fit": "stretch"}
    painting = step.add("image/resize", inputs, suffix="fitted").out("image")
    painted = step.add("image/composite", {"destination": base, "source": painting})
    covered = step.add("mask/from-alpha", {"image": painting}, suffix="mask")
    return [painted.out("image"), covered.out("mask")]


# ---- pictures that go out ------------------------------------------------------------------------


def _saved(step: Step) -> Outputs:
    inputs = {"image": step.needed("images"), "filename_prefix": step.value("filename_prefix")}
    return [step.sink("output/image", inputs).out("image")]


def _saved_advanced(step: Step) -> Outputs:
    if step.constant("format", "png") != "png":
        step.warn("it is saved as PNG with 8 bits a channel")
    elif step.constant("format.bit_depth", "8-bit") != "8-bit":
        step.warn("it is saved with 8 bits a channel")
    if step.constant("format.input_color_space", "sRGB") != "sRGB":
        step.warn("its colours are saved as sRGB")
    return _saved(step)


def _previewed(step: Step) -> Outputs:
    inputs = {"image": step.needed("images"), "preview": True}
    return [step.sink("output/image", inputs).out("image")]


def _animated(step: Step) -> Outputs:
    """Pictures that are saved as a moving one: a video here."""
    step.warn("it is saved as a video (mp4)")
    images = step.needed("images")
    made = step.add("video/make", {"images": [images], "fps": step.value("fps")}, suffix="video")
    prefix = step.value("filename_prefix")
    step.sink("output/video", {"video": made.out("video"), "filename_prefix": prefix})
    return [images]


# ---- videos --------------------------------------------------------------------------------------


def _made(step: Step) -> Outputs:
    if step.constant("bit_depth", "auto") not in ("auto", 8, "8"):
        step.warn("it is made with 8 bits a channel")
    if step.constant("color_space", "sRGB") != "sRGB":
        step.warn("it is made in sRGB")
    inputs = {
        "images": [step.needed("images")],
        "audio": step.value("audio"),
        "fps": step.value("fps"),
    }
    return [step.add("video/make", inputs).out("video")]


def _saved_video(step: Step) -> Outputs:
    container = step.constant("format", "auto")
    codec = step.constant("format.codec", None) or step.constant("codec", "auto")
    if container not in ("auto", "mp4") or codec not in ("auto", "h264"):
        step.warn("it is saved as mp4 with H.264")
    inputs = {"video": step.needed("video"), "filename_prefix": step.value("filename_prefix")}
    return [step.sink("output/video", inputs).out("video")]


def _components(step: Step) -> Outputs:
    video = step.needed("video")
    parts = step.add("video/components", {"video": video})
    about = step.add("video/info", {"video": video}, suffix="info")
    kind = [Constant(8), Constant("sRGB")]
    return [parts.out("images"), parts.out("audio"), about.out("fps"), *kind]


def _start(step: Step, name: str, about: str, source: tuple[str, Value]) -> Value | None:
    """Where a part begins; a negative time counts from the end."""
    value = step.value(name)
    if isinstance(value, Constant) and isinstance(value.value, int | float) and value.value >= 0:
        return value
    length = step.add(about, dict([source]), suffix="info").out("duration")
    return number(step, "a if a >= 0 else max(a + d, 0)", a=value, d=length)


def _slice(step: Step) -> Outputs:
    video = step.needed("video")
    if step.constant("strict_duration", usual=False):
        step.warn("a video that is shorter than asked for gives what there is, and no error")
    start = _start(step, "start_time", "video/info", ("video", video))
    inputs = {"video": video, "start": start, "duration": step.value("duration")}
    return [step.add("video/slice", inputs).out("video")]


# ---- sounds --------------------------------------------------------------------------------------


def _saved_audio(step: Step) -> Outputs:
    inputs = {"audio": step.needed("audio"), "filename_prefix": step.value("filename_prefix")}
    return [step.sink("output/audio", inputs).out("audio")]


def _saved_small_audio(step: Step) -> Outputs:
    step.warn("it is saved without loss, as the server's audio format says")
    return _saved_audio(step)


def _saved_audio_advanced(step: Step) -> Outputs:
    if step.constant("format", "flac") != "flac":
        return _saved_small_audio(step)
    return _saved_audio(step)


def _previewed_audio(step: Step) -> Outputs:
    inputs = {"audio": step.needed("audio"), "preview": True}
    return [step.sink("output/audio", inputs).out("audio")]


def _trimmed(step: Step) -> Outputs:
    audio, duration = step.needed("audio"), step.value("duration")
    if isinstance(duration, Constant) and not duration.value:
        message = "the part that it takes lasts 0 seconds"
        raise Unsupported(message)
    start = _start(step, "start_index", "audio/info", ("audio", audio))
    inputs = {"audio": audio, "start": start, "duration": duration}
    return [step.add("audio/trim", inputs).out("audio")]


def _appended(step: Step) -> Outputs:
    order = ("audio1", "audio2")
    if chosen(step, "direction", {"after": False, "before": True}):
        order = ("audio2", "audio1")
    inputs = {"first": step.needed(order[0]), "second": step.needed(order[1])}
    return [step.add("audio/join", inputs).out("audio")]


def _louder(step: Step) -> Outputs:
    volume = step.needed("volume")
    decibels = number(step, f"max(min(a, {_QUIETEST_DB}), -{_QUIETEST_DB})", a=volume)
    if isinstance(decibels, Constant) and decibels != volume:
        step.warn(f"it changes the loudness by {_QUIETEST_DB} dB at most")
    inputs = {"audio": step.needed("audio"), "decibels": decibels}
    return [step.add("audio/gain", inputs).out("audio")]


_SILENCE: Final[Mapping[str, Any]] = {
    "duration": "duration",
    "sample_rate": "sample_rate",
    "channels": "channels",
}
_AUDIO: Final = ("audio",)

ENTRIES: Final[Mapping[str, Entry]] = {
    "LoadImage": _picture,
    "LoadImageOutput": _picture,
    "LoadImageMask": _picture_mask,
    "LoadVideo": _video_file,
    "LoadAudio": _audio_file,
    "RecordAudio": _audio_file,
    "Painter": _painter,
    "SaveImage": _saved,
    "SaveImageAdvanced": _saved_advanced,
    "PreviewImage": _previewed,
    "SaveImageWebsocket": _previewed,
    "SaveAnimatedWEBP": _animated,
    "SaveAnimatedPNG": _animated,
    "SaveWEBM": _animated,
    "CreateVideo": _made,
    "SaveVideo": _saved_video,
    "GetVideoComponents": _components,
    "Video Slice": _slice,
    "SaveAudio": _saved_audio,
    "SaveAudioMP3": _saved_small_audio,
    "SaveAudioOpus": _saved_small_audio,
    "SaveAudioAdvanced": _saved_audio_advanced,
    "PreviewAudio": _previewed_audio,
    "TrimAudioDuration": _trimmed,
    "AudioConcat": _appended,
    "AudioMerge": Direct(
        "audio/mix", {"audio1": "first", "audio2": "second", "merge_method": "method"}, _AUDIO
    ),
    "AudioAdjustVolume": _louder,
    "EmptyAudio": Direct("audio/silence", _SILENCE, _AUDIO),
    "SplitAudioChannels": Direct("audio/split-channels", {"audio": "audio"}, ("left", "right")),
    "JoinAudioChannels": Direct(
        "audio/join-channels", {"audio_left": "left", "audio_right": "right"}, _AUDIO
    ),
}
