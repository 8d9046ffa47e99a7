"""Nodes that belong to one model family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from inline_core.importers.comfyui.mapping.conditioning import VisionOutput, encoded
from inline_core.importers.comfyui.mapping.loaders import NamedFile
from inline_core.importers.comfyui.mapping.step import Entry, Outputs, Step, Unsupported
from inline_core.importers.comfyui.mapping.values import Constant, Value, Wire
from inline_core.importers.comfyui.mapping.video_latents import (
    BothParts,
    SoundPart,
    VideoPart,
    as_wire,
    framed,
    with_rate,
)

WAN_FPS: Final = 16.0
_HUNYUAN_FPS: Final = 24.0
_H3_RATIO: Final = 4
_H3_LARGEST: Final = 2048


def empty_video(step: Step, fps: float) -> Wire:
    """The latent of a video, of a node's own width, height, length and batch_size."""
    size = {
        "width": step.value("width"),
        "height": step.value("height"),
        "frames": step.value("length"),
        "batch": step.value("batch_size"),
        "fps": fps,
    }
    return as_wire(step.add("latent/empty-video", size, suffix="latent").out("latent"))


def _image_to_video(step: Step, fps: float, ends: Mapping[str, Value | None], rest: str) -> Outputs:
    latent = empty_video(step, fps)
    positive, negative = step.needed("positive"), step.needed("negative")
    shown = {name: value for name, value in ends.items() if value is not None}
    if not shown:
        return [positive, negative, latent]
    frames = {"vae": step.needed("vae"), **shown}
    both = [
        framed(step, conditioning, latent, frames, rest=rest, suffix=name)
        for name, conditioning in (("positive", positive), ("negative", negative))
    ]
    return [*both, latent]


def check_vision(step: Step, name: str, image: Value | None) -> None:
    """CLIP is shown the frame itself here; say so where it was to be shown another picture."""
    seen = step.value(name)
    looked = seen.value if isinstance(seen, Constant) else None
    if isinstance(looked, VisionOutput) and looked.image != image:
        step.warn("CLIP is shown the frame itself, not another picture")


def wan_image(step: Step) -> Outputs:
    """WanImageToVideo."""
    image = step.value("start_image")
    if step.value("ref_pad_image") is not None:
        message = "its ref_pad_image is not available here"
        raise Unsupported(message)
    check_vision(step, "clip_vision_output", image)
    return _image_to_video(step, WAN_FPS, {"first": image}, "grey")


def wan_first_last(step: Step) -> Outputs:
    """WanFirstLastFrameToVideo."""
    ends = {"first": step.value("start_image"), "last": step.value("end_image")}
    check_vision(step, "clip_vision_start_image", ends["first"])
    check_vision(step, "clip_vision_end_image", ends["last"])
    return _image_to_video(step, WAN_FPS, ends, "grey")


def wan_vace(step: Step) -> Outputs:
    """WanVaceToVideo."""
    inputs: dict[str, Any] = {
        "positive": step.needed("positive"),
        "negative": step.needed("negative"),
        "vae": step.needed("vae"),
        "latent": empty_video(step, WAN_FPS),
        "image": step.value("reference_image"),
        "mask": step.value("control_masks"),
        "strength": step.value("strength"),
    }
    video = step.value("control_video")
    if video is not None:
        inputs["video"] = [video]
    added = step.add("conditioning/vace", inputs)
    return [added.out(port) for port in ("positive", "negative", "latent", "trim")]


def hunyuan_image(step: Step) -> Outputs:
    """HunyuanVideo15ImageToVideo."""
    image = step.value("start_image")
    check_vision(step, "clip_vision_output", image)
    return _image_to_video(step, _HUNYUAN_FPS, {"first": image}, "nothing")


# ---- LTX ---------------------------------------------------------------------------------------


def ltx_empty_video(step: Step) -> Outputs:
    """EmptyLTXVLatentVideo."""
    return [Constant(VideoPart(base=empty_video(step, 25.0)))]


def ltx_empty_audio(step: Step) -> Outputs:
    """LTXVEmptyLatentAudio: the sound lasts as long as its video here."""
    step.ignore("the sound of a video is as long as the video here")
    return [Constant(SoundPart())]


def ltx_join(step: Step) -> Outputs:
    """LTXVConcatAVLatent."""
    video, audio = step.constant("video_latent"), step.constant("audio_latent")
    if not isinstance(video, VideoPart) or not isinstance(audio, SoundPart):
        message = "only latents of LTX video and sound can be joined"
        raise Unsupported(message)
    made = audio.made
    if video.made and made not in video.same_sound | {video.base}:
        message = "the video and the sound come from different samplings, which stay apart here"
        raise Unsupported(message)
    if made is not None and not video.made:
        message = "a sound that was made before cannot get a new video here"
        raise Unsupported(message)
    return [Constant(BothParts(video, audio))]


def ltx_split(step: Step) -> Outputs:
    """LTXVSeparateAVLatent."""
    latent = step.needed("av_latent")
    if isinstance(latent, Wire):  # sampled from a latent that was no video's
        return [Constant(VideoPart(latent, made=True)), Constant(SoundPart(latent))]
    both = step.constant("av_latent")
    if not isinstance(both, BothParts):
        message = "only a latent of LTX video and sound can be taken apart"
        raise Unsupported(message)
    return [Constant(both.video), Constant(both.audio)]


def ltx_first_frame(step: Step) -> Outputs:
    """LTXVImgToVideoInplace."""
    latent = step.needed("latent")
    if step.constant("bypass", usual=False):
        step.ignore("it is bypassed")
        return [latent]
    video = _video(latent)
    strength = step.value("strength") or Constant(1.0)
    return [Constant(video.showing(step.needed("image"), step.needed("vae"), 0, strength))]


def ltx_image_to_video(step: Step) -> Outputs:
    """LTXVImgToVideo."""
    video = VideoPart(base=empty_video(step, 25.0))
    strength = step.value("strength") or Constant(1.0)
    shown = video.showing(step.needed("image"), step.needed("vae"), 0, strength)
    return [step.needed("positive"), step.needed("negative"), Constant(shown)]


def ltx_guide(step: Step) -> Outputs:
    """LTXVAddGuide: of frames only the first and the last."""
    for name in ("attention_mask", "iclora_parameters"):
        if step.value(name) is not None:
            message = f"its {name} is not available here"
            raise Unsupported(message)
    index = int(step.number("frame_idx", 0))
    if index not in {0, -1}:
        message = f"a guide for frame {index} is not available here, only for 0 and -1"
        raise Unsupported(message)
    video = _video(step.needed("latent"))
    strength = step.value("strength") or Constant(1.0)
    shown = video.showing(step.needed("image"), step.needed("vae"), index, strength)
    return [step.needed("positive"), step.needed("negative"), Constant(shown)]


def _video(latent: Value) -> VideoPart:
    if isinstance(latent, Constant) and isinstance(latent.value, VideoPart):
        return latent.value
    if isinstance(latent, Constant) and isinstance(latent.value, BothParts):
        return latent.value.video
    message = "its latent is none of an LTX video"
    raise Unsupported(message)


def ltx_crop_guides(step: Step) -> Outputs:
    """LTXVCropGuides: guides are not part of the latent here."""
    step.ignore("guides are no part of the latent here, so there is nothing to cut off")
    latent = step.needed("latent")
    if isinstance(latent, Constant) and isinstance(latent.value, VideoPart):
        latent = Constant(replace(latent.value, frames=()))
    return [step.needed("positive"), step.needed("negative"), latent]


def ltx_conditioning(step: Step) -> Outputs:
    """LTXVConditioning: the frame rate is one of the latent here."""
    rate = step.value("frame_rate") or Constant(25.0)
    return [with_rate(step.needed("positive"), rate), with_rate(step.needed("negative"), rate)]


def ltx_upsample(step: Step) -> Outputs:
    """LTXVLatentUpsampler: twice as wide and high; the sound stays."""
    latent = step.needed("samples")
    video = _video(latent)
    model = step.constant("upscale_model")
    if not isinstance(model, NamedFile) or not video.made:
        message = "it needs a latent upscaler and a latent that was sampled"
        raise Unsupported(message)
    name = step.uses_file(model.category, model.name)
    inputs = {"latent": video.base, "vae": step.needed("vae"), "file": name}
    wire = as_wire(step.add("latent/upscale-model", inputs).out("latent"))
    sound = video.same_sound | {video.base}
    return [Constant(VideoPart(base=wire, made=True, same_sound=sound))]


# ---- others ------------------------------------------------------------------------------------


def ace_step(step: Step) -> Outputs:
    """TextEncodeAceStepAudio1.5."""
    if step.constant("generate_audio_codes", usual=True):
        step.warn(
            "the language model that plans the music first (generate_audio_codes) is not run: it "
            "is made from the description and the lyrics alone"
        )
    inputs = {
        "conditioning": encoded(step, step.needed("tags"), step.needed("clip"), "tags"),
        "lyrics": step.value("lyrics"),
        "bpm": step.value("bpm"),
        "time_signature": step.value("timesignature"),
        "language": step.value("language"),
        "key": step.value("keyscale"),
    }
    return [step.add("conditioning/song", inputs).out("conditioning")]


def h3_video(step: Step) -> Outputs:
    """MiniMaxH3ImageToVideo."""
    latent = empty_video(step, _HUNYUAN_FPS)
    positive = encoded(step, step.needed("prompt"), step.needed("clip"), "text")
    ends = {"first": step.value("first_frame"), "last": step.value("last_frame")}
    shown = {name: value for name, value in ends.items() if value is not None}
    if shown:
        inputs = {"conditioning": positive, "vae": step.needed("vae"), "latent": latent, **shown}
        added = step.add("conditioning/keyframes", inputs)
        positive = as_wire(added.out("conditioning"))
    video = VideoPart(base=latent)
    return [positive, Constant(BothParts(video, SoundPart()))]


def h3_references(step: Step) -> Outputs:
    """MiniMaxH3ReferenceToVideo, with pictures."""
    for name in ("ref_videos", "ref_video_audios", "ref_audios"):
        if step.grown(name):
            message = f"its {name} are not available here, only pictures"
            raise Unsupported(message)
    latent = empty_video(step, _HUNYUAN_FPS)
    positive = encoded(step, step.needed("prompt"), step.needed("clip"), "text")
    shown = [value for _, value in step.grown("ref_images")]
    if shown:
        side = _H3_LARGEST
        if step.constant("ref_image_size", "match") == "match":
            side = int(min(step.number("width", 1344), step.number("height", 768)))
            step.warn(f"its pictures are scaled to a shorter side of {side}, that of the video")
        inputs = {
            "conditioning": positive,
            "vae": step.needed("vae"),
            "images": shown,
            "short_side": Constant(side),
        }
        added = step.add("conditioning/reference-pictures", inputs)
        positive = as_wire(added.out("conditioning"))
    return [positive, Constant(BothParts(VideoPart(base=latent), SoundPart()))]


def h3_shift(step: Step) -> Outputs:
    """MiniMaxH3SigmaShift: the sound's shift is a quarter of the video's here."""
    video, audio = step.number("shift_video", 12.0), step.number("shift_audio", 3.0)
    if video != _H3_RATIO * audio:
        message = (
            f"a shift of {video} for the video and {audio} for the sound: here the sound's is a "
            "quarter of the video's"
        )
        raise Unsupported(message)
    inputs = {"model": step.needed("model"), "shift": step.value("shift_video")}
    return [step.add("model/shift", inputs).out("model")]


def h3_guide(step: Step) -> Outputs:
    """MiniMaxH3AddGuide: a picture that the video begins or ends with."""
    index = int(step.number("frame_idx", 0))
    if step.value("audio") is not None or index not in {0, -1}:
        message = "only a picture as the first or the last frame can be a guide here"
        raise Unsupported(message)
    latent = step.needed("latent")
    size = latent if isinstance(latent, Wire) else _video(latent).base
    inputs = {
        "conditioning": step.needed("positive"),
        "vae": step.needed("vae"),
        "latent": size,
        "first" if index == 0 else "last": step.needed("image"),
    }
    return [step.add("conditioning/keyframes", inputs).out("conditioning")]


def wan_fun_inpaint(step: Step) -> Outputs:
    """WanFunInpaintToVideo: the frames that a video begins and ends with."""
    return wan_first_last(step)


ENTRIES: Final[Mapping[str, Entry]] = {
    "WanImageToVideo": wan_image,
    "WanFirstLastFrameToVideo": wan_first_last,
    "WanVaceToVideo": wan_vace,
    "WanFunInpaintToVideo": wan_fun_inpaint,
    "HunyuanVideo15ImageToVideo": hunyuan_image,
    "EmptyLTXVLatentVideo": ltx_empty_video,
    "LTXVEmptyLatentAudio": ltx_empty_audio,
    "LTXVConcatAVLatent": ltx_join,
    "LTXVSeparateAVLatent": ltx_split,
    "LTXVImgToVideoInplace": ltx_first_frame,
    "LTXVImgToVideo": ltx_image_to_video,
    "LTXVAddGuide": ltx_guide,
    "LTXVCropGuides": ltx_crop_guides,
    "LTXVConditioning": ltx_conditioning,
    "LTXVLatentUpsampler": ltx_upsample,
    "TextEncodeAceStepAudio1.5": ace_step,
    "MiniMaxH3ImageToVideo": h3_video,
    "MiniMaxH3ReferenceToVideo": h3_references,
    "MiniMaxH3SigmaShift": h3_shift,
    "MiniMaxH3AddGuide": h3_guide,
}
