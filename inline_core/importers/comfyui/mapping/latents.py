"""Latents, and the way between pictures and latents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inline_core.importers.comfyui.mapping.step import Direct, Entry, Outputs, Step, Unsupported
from inline_core.importers.comfyui.mapping.values import Constant, Value, Wire
from inline_core.importers.comfyui.mapping.video_latents import (
    SoundPart,
    VideoPart,
    as_wire,
    latent_wire,
)

_SIZE: Final = {"width": "width", "height": "height", "batch_size": "batch"}
_LATENT = ("latent",)


def empty_video(fps: float) -> Entry:
    """An entry for an empty latent of a video; `fps` is what the model is usually run with."""
    names = {**_SIZE, "length": "frames"}
    return Direct("latent/empty-video", names, _LATENT, set={"fps": fps})


def empty_audio(rate: float) -> Entry:
    """An entry for an empty latent of a sound, `rate` latents a second."""
    names = {"seconds": "seconds", "batch_size": "batch"}
    return Direct("latent/empty-audio", names, _LATENT, set={"rate": rate})


def decode(step: Step) -> Outputs:
    """VAEDecode, VAEDecodeTiled: tiles are used where memory asks for them."""
    samples = step.needed("samples")
    if isinstance(samples, Constant):
        samples = _video_of(step, samples.value)
    added = step.add("vae/decode", {"vae": step.needed("vae"), "latent": samples})
    return [added.out("image")]


def _video_of(step: Step, latent: Any) -> Wire:
    if isinstance(latent, VideoPart):
        return latent_wire(step, latent)
    message = "these latents cannot be decoded to pictures"
    raise Unsupported(message)


def decode_audio(step: Step) -> Outputs:
    """VAEDecodeAudio, LTXVAudioVAEDecode: the sound of a video goes with the VAE of its model."""
    samples = step.needed("samples")
    if isinstance(samples, Constant):
        return [_soundtrack(step, samples.value)]
    vae = step.value("vae")
    added = step.add("vae/decode-audio", {"vae": vae, "latent": samples})
    return [added.out("audio")]


def _soundtrack(step: Step, latent: Any) -> Value:
    if not isinstance(latent, SoundPart) or latent.made is None or latent.model is None:
        message = "this sound was not made by a model: there is nothing to decode"
        raise Unsupported(message)
    vae = step.add("load/vae-for-model", {"model": latent.model}, suffix="vae").out("vae")
    added = step.add("vae/decode-audio", {"vae": vae, "latent": latent.made})
    return added.out("audio")


def encode(step: Step) -> Outputs:
    """VAEEncode, VAEEncodeTiled."""
    added = step.add("vae/encode", {"vae": step.needed("vae"), "image": step.needed("pixels")})
    return [added.out("latent")]


def encode_for_inpaint(step: Step) -> Outputs:
    """VAEEncodeForInpaint: what is masked is grey before it is encoded, the mask is grown."""
    vae, mask = step.needed("vae"), step.needed("mask")
    grey = {"image": step.needed("pixels"), "mask": mask}
    picture = step.add("image/grey-out", grey, suffix="grey").out("image")
    latent = step.add("vae/encode", {"vae": vae, "image": picture}, suffix="latent").out("latent")
    grow = {"mask": mask, "expand": step.value("grow_mask_by"), "tapered_corners": False}
    grown = step.add("mask/grow", grow, suffix="mask").out("mask")
    added = step.add("latent/noise-mask", {"latent": latent, "mask": grown})
    return [added.out("latent")]


def noise_mask(step: Step) -> Outputs:
    """SetLatentNoiseMask."""
    inputs = {"latent": step.needed("samples"), "mask": step.needed("mask")}
    return [step.add("latent/noise-mask", inputs).out("latent")]


def wan_start(step: Step) -> Outputs:
    """Wan22ImageToVideoLatent: a picture that stays what it is as the first frame (Wan 2.2 5B)."""
    size = {
        "width": step.value("width"),
        "height": step.value("height"),
        "frames": step.value("length"),
        "batch": step.value("batch_size"),
        "fps": 24.0,
    }
    empty = as_wire(step.add("latent/empty-video", size).out("latent"))
    image = step.value("start_image")
    if image is None:
        return [empty]
    return [Constant(VideoPart(base=empty).showing(image, step.needed("vae")))]


ENTRIES: Final[Mapping[str, Entry]] = {
    "EmptyLatentImage": Direct("latent/empty", _SIZE, _LATENT),
    "EmptySD3LatentImage": Direct("latent/empty", _SIZE, _LATENT),
    "EmptyFlux2LatentImage": Direct("latent/empty", _SIZE, _LATENT),
    "EmptyHunyuanLatentVideo": empty_video(24.0),
    "EmptyHunyuanVideo15Latent": empty_video(24.0),
    "EmptyMochiLatentVideo": empty_video(24.0),
    "EmptyAceStep1.5LatentAudio": empty_audio(25.0),
    "VAEDecode": decode,
    "VAEDecodeTiled": decode,
    "VAEDecodeAudio": decode_audio,
    "VAEDecodeAudioTiled": decode_audio,
    "LTXVAudioVAEDecode": decode_audio,
    "VAEEncode": encode,
    "VAEEncodeTiled": encode,
    "VAEEncodeForInpaint": encode_for_inpaint,
    "SetLatentNoiseMask": noise_mask,
    "Wan22ImageToVideoLatent": wan_start,
    "LatentUpscale": Direct(
        "latent/resize",
        {"samples": "latent", "width": "width", "height": "height", "upscale_method": "method"},
        _LATENT,
        set={"by": "size"},
    ),
    "LatentUpscaleBy": Direct(
        "latent/resize",
        {"samples": "latent", "scale_by": "factor", "upscale_method": "method"},
        _LATENT,
        set={"by": "factor"},
    ),
    "LatentFromBatch": Direct(
        "latent/from-batch",
        {"samples": "latent", "batch_index": "index", "length": "length"},
        _LATENT,
    ),
    "RepeatLatentBatch": Direct(
        "latent/repeat", {"samples": "latent", "amount": "amount"}, _LATENT
    ),
    "LatentBatch": Direct("latent/join", {"samples1": "first", "samples2": "second"}, _LATENT),
    "LatentFlip": Direct(
        "latent/flip",
        {"samples": "latent", "flip_method": "axis"},
        _LATENT,
        choices={
            "flip_method": {"x-axis: vertically": "vertical", "y-axis: horizontally": "horizontal"}
        },
    ),
    "TrimVideoLatent": Direct(
        "latent/trim-video", {"samples": "latent", "trim_amount": "amount"}, _LATENT
    ),
    "LatentConcat": Direct(
        "latent/concat",
        {"samples1": "first", "samples2": "second", "dim": "side"},
        _LATENT,
        choices={
            "dim": {
                "x": "right",
                "-x": "left",
                "y": "below",
                "-y": "above",
                "t": "after",
                "-t": "before",
            }
        },
    ),
    "LatentCutToBatch": Direct(
        "latent/to-batch",
        {"samples": "latent", "dim": "axis", "slice_size": "size"},
        _LATENT,
    ),
    "ReplaceVideoLatentFrames": Direct(
        "latent/replace-frames",
        {"destination": "latent", "source": "source", "index": "index"},
        _LATENT,
    ),
    "LatentCut": Direct(
        "latent/cut",
        {"samples": "latent", "dim": "axis", "index": "index", "amount": "amount"},
        _LATENT,
    ),
}
