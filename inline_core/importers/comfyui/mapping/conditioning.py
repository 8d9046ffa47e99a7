"""Prompts, and what is done with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inline_core.importers.comfyui.mapping.step import Direct, Entry, Outputs, Step, Unsupported
from inline_core.importers.comfyui.mapping.values import Constant, Value, Wire
from inline_core.importers.comfyui.mapping.video_latents import as_wire

# What Qwen-Image-Edit shows its text encoder and its transformer, in megapixels of 1024 x 1024.
_SEEN_MEGAPIXELS: Final = 384 * 384 / 1024**2
_SHOWN_MEGAPIXELS: Final = 1.0
_VAE_SIDE: Final = 8
_MOST_IMAGES: Final = 3


@dataclass(frozen=True, slots=True)
class VisionOutput:
    """A CLIP_VISION_OUTPUT: the picture that was looked at."""

    image: Value


def encoded(step: Step, text: Value, clip: Value | None, suffix: str = "") -> Wire:
    """A text as conditioning."""
    added = step.add("encode/text", {"text_encoder": clip, "prompt": text}, suffix=suffix)
    return as_wire(added.out("conditioning"))


def text_encode(step: Step) -> Outputs:
    """CLIPTextEncode."""
    return [encoded(step, step.needed("text"), step.needed("clip"))]


def text_encode_flux(step: Step) -> Outputs:
    """CLIPTextEncodeFlux: one text for both encoders, and the guidance."""
    first, second = step.constant("clip_l", ""), step.constant("t5xxl", "")
    if first and second and first != second:
        message = "it has different texts for CLIP-L and T5; one prompt goes to both here"
        raise Unsupported(message, "CLIPTextEncode with one text, then FluxGuidance")
    wire = encoded(step, Constant(second or first), step.needed("clip"), "text")
    added = step.add(
        "conditioning/guidance", {"conditioning": wire, "guidance": step.value("guidance")}
    )
    return [added.out("conditioning")]


def text_encode_sdxl(step: Step) -> Outputs:
    """CLIPTextEncodeSDXL: one text for both encoders, and the sizes that the model is told."""
    first, second = step.value("text_g"), step.value("text_l")
    if first is None or (second is not None and second not in (first, Constant(""))):
        message = "it has different texts for its two encoders; one prompt goes to both here"
        raise Unsupported(message, "CLIPTextEncode with one text")
    wire = encoded(step, first, step.needed("clip"), "text")
    sizes = {
        "original_width": step.value("width"),
        "original_height": step.value("height"),
        "crop_x": step.value("crop_w"),
        "crop_y": step.value("crop_h"),
        "target_width": step.value("target_width"),
        "target_height": step.value("target_height"),
    }
    return [step.add("conditioning/sdxl-size", {"conditioning": wire, **sizes}).out("conditioning")]


def qwen_edit_plus(step: Step) -> Outputs:
    """TextEncodeQwenImageEditPlus: up to three numbered pictures."""
    names = [f"image{number}" for number in range(1, _MOST_IMAGES + 1)]
    images = [value for name in names if (value := step.value(name)) is not None]
    return [_edited(step, images, numbered=True, seen=_SEEN_MEGAPIXELS)]


def qwen_edit(step: Step) -> Outputs:
    """TextEncodeQwenImageEdit: one picture."""
    image = step.value("image")
    images = [] if image is None else [image]
    return [_edited(step, images, numbered=False, seen=_SHOWN_MEGAPIXELS)]


def _edited(step: Step, images: list[Value], *, numbered: bool, seen: float) -> Wire:
    text, clip = step.needed("prompt"), step.needed("clip")
    if not images:
        return encoded(step, text, clip)
    shown = [_scaled(step, image, seen, 1, f"seen-{n}") for n, image in enumerate(images, 1)]
    inputs: dict[str, Any] = {"text_encoder": clip, "prompt": text, "images": shown}
    added = step.add("encode/text-with-images", {**inputs, "numbered": numbered})
    wire, vae = as_wire(added.out("conditioning")), step.value("vae")
    if vae is None:
        return wire
    for number, image in enumerate(images, 1):
        large = _scaled(step, image, _SHOWN_MEGAPIXELS, _VAE_SIDE, f"shown-{number}")
        latent = step.add("vae/encode", {"vae": vae, "image": large}, suffix=f"latent-{number}")
        wire = referring(step, wire, latent.out("latent"), f"reference-{number}")
    return wire


def _scaled(step: Step, image: Value, megapixels: float, multiple: int, suffix: str) -> Wire:
    inputs = {
        "image": image,
        "by": "megapixels",
        "megapixels": megapixels,
        "multiple": multiple,
        "method": "area",
        "fit": "stretch",
    }
    return as_wire(step.add("image/resize", inputs, suffix=suffix).out("image"))


def referring(step: Step, conditioning: Value, latent: Value, suffix: str = "") -> Wire:
    """A conditioning with a picture that the model looks at."""
    inputs = {"conditioning": conditioning, "latent": latent}
    added = step.add("conditioning/reference", inputs, suffix=suffix)
    return as_wire(added.out("conditioning"))


def reference_latent(step: Step) -> Outputs:
    """ReferenceLatent."""
    latent = step.value("latent")
    if latent is None:
        return [step.needed("conditioning")]
    return [referring(step, step.needed("conditioning"), latent)]


def reference_method(step: Step) -> Outputs:
    """FluxKontextMultiReferenceLatentMethod."""
    method = step.constant("reference_latents_method")
    step.warn(
        f"where references stand ({method!r}) is for the family of the model here: as its "
        "reference implementation has it"
    )
    return [step.needed("conditioning")]


def vision_encode(step: Step) -> Outputs:
    """CLIPVisionEncode: models that look at a picture through CLIP do it themselves here."""
    if step.constant("crop", "center") != "center":
        step.warn("the picture is cropped to its middle before CLIP sees it, not squeezed")
    return [Constant(VisionOutput(step.needed("image")))]


def inpaint(step: Step) -> Outputs:
    """InpaintModelConditioning: the picture, what of it is to be filled, and its latent."""
    vae, pixels, mask = step.needed("vae"), step.needed("pixels"), step.needed("mask")
    outputs: list[Value | None] = []
    for name in ("positive", "negative"):
        conditioning = step.needed(name)
        inputs = {"conditioning": conditioning, "vae": vae, "image": pixels, "mask": mask}
        added = step.add("conditioning/inpaint", inputs, suffix=name)
        outputs.append(added.out("conditioning"))
    latent = step.add("vae/encode", {"vae": vae, "image": pixels}, suffix="latent").out("latent")
    if step.constant("noise_mask", usual=True):
        inputs = {"latent": latent, "mask": mask}
        latent = step.add("latent/noise-mask", inputs, suffix="mask").out("latent")
    return [*outputs, latent]


def pix2pix(step: Step) -> Outputs:
    """InstructPixToPixConditioning: a picture beside the latents (FLUX.1 Canny and Depth)."""
    vae, pixels = step.needed("vae"), step.needed("pixels")
    shown = step.add("vae/encode", {"vae": vae, "image": pixels}, suffix="shown").out("latent")
    outputs = [referring(step, step.needed(name), shown, name) for name in ("positive", "negative")]
    empty = step.add("latent/empty-like", {"latent": shown}, suffix="latent")
    return [*outputs, empty.out("latent")]


def controlnet(step: Step) -> Outputs:
    """ControlNetApplyAdvanced, ControlNetApplySD3, ControlNetInpaintingAliMamaApply."""
    added = step.add(
        "conditioning/controlnet",
        {
            "positive": step.needed("positive"),
            "negative": step.needed("negative"),
            "controlnet": step.needed("control_net"),
            "image": step.needed("image"),
            "vae": step.value("vae"),
            "mask": step.value("mask"),
            "strength": step.value("strength"),
            "start": step.value("start_percent"),
            "end": step.value("end_percent"),
        },
    )
    return [added.out("positive"), added.out("negative")]


def clip_skip(step: Step) -> Outputs:
    """CLIPSetLastLayer: counted from the end, -1 is the last one."""
    layer = step.number("stop_at_clip_layer", -1)
    added = step.add(
        "load/clip-skip", {"text_encoder": step.needed("clip"), "layer": abs(int(layer))}
    )
    return [added.out("text_encoder")]


_COND = ("conditioning",)

ENTRIES: Final[Mapping[str, Entry]] = {
    "CLIPTextEncode": text_encode,
    "CLIPTextEncodeFlux": text_encode_flux,
    "CLIPTextEncodeSDXL": text_encode_sdxl,
    "TextEncodeQwenImageEditPlus": qwen_edit_plus,
    "TextEncodeQwenImageEdit": qwen_edit,
    "ReferenceLatent": reference_latent,
    "FluxKontextMultiReferenceLatentMethod": reference_method,
    "CLIPVisionEncode": vision_encode,
    "FluxGuidance": Direct(
        "conditioning/guidance", {"conditioning": "conditioning", "guidance": "guidance"}, _COND
    ),
    "ConditioningZeroOut": Direct("conditioning/zero", {"conditioning": "conditioning"}, _COND),
    "ConditioningCombine": Direct(
        "conditioning/combine", {"conditioning_1": "first", "conditioning_2": "second"}, _COND
    ),
    "ConditioningConcat": Direct(
        "conditioning/concat", {"conditioning_to": "first", "conditioning_from": "second"}, _COND
    ),
    "ConditioningAverage": Direct(
        "conditioning/average",
        {
            "conditioning_to": "first",
            "conditioning_from": "second",
            "conditioning_to_strength": "strength",
        },
        _COND,
    ),
    "ConditioningSetTimestepRange": Direct(
        "conditioning/span",
        {"conditioning": "conditioning", "start": "start", "end": "end"},
        _COND,
    ),
    "ConditioningSetArea": Direct(
        "conditioning/area",
        {
            "conditioning": "conditioning",
            "width": "width",
            "height": "height",
            "x": "x",
            "y": "y",
            "strength": "strength",
        },
        _COND,
    ),
    "ConditioningSetAreaPercentage": Direct(
        "conditioning/area",
        {
            "conditioning": "conditioning",
            "width": "width_share",
            "height": "height_share",
            "x": "x_share",
            "y": "y_share",
            "strength": "strength",
        },
        _COND,
        set={"by": "share"},
    ),
    "ConditioningSetAreaStrength": Direct(
        "conditioning/strength", {"conditioning": "conditioning", "strength": "strength"}, _COND
    ),
    "ConditioningSetMask": Direct(
        "conditioning/mask",
        {"conditioning": "conditioning", "mask": "mask", "strength": "strength"},
        _COND,
    ),
    "InpaintModelConditioning": inpaint,
    "InstructPixToPixConditioning": pix2pix,
    "ControlNetApplyAdvanced": controlnet,
    "ControlNetApplySD3": controlnet,
    "ControlNetInpaintingAliMamaApply": controlnet,
    "CLIPSetLastLayer": clip_skip,
}
