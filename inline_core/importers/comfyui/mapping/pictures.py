"""Pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inline_core.graph.ports import PortKind
from inline_core.importers.comfyui.mapping.computing import (
    ignored,
    kind_of,
    number,
    numbered,
    refused,
    whole,
)
from inline_core.importers.comfyui.mapping.step import (
    Direct,
    Entry,
    Outputs,
    Step,
    Unsupported,
    chosen,
)
from inline_core.importers.comfyui.mapping.values import Constant, Value

_METHOD: Final = {"upscale_method": "method"}
_CROPS: Final = {"disabled": "stretch", "center": "crop"}
_IMAGE: Final = ("image",)

COLOURS: Final = {
    "white": "#ffffff",
    "black": "#000000",
    "red": "#ff0000",
    "green": "#00ff00",
    "blue": "#0000ff",
}

# ---- sizes ---------------------------------------------------------------------------------------
_WHITE: Final = 0xFFFFFF  # the largest of three bytes of colour


def _with_mode(names: Mapping[str, str], *fixed: tuple[str, Any]) -> Entry:
    """A resize of pictures by some of its modes."""
    return Direct(
        "image/resize",
        {"image": "image", **_METHOD, **names},
        _IMAGE,
        set=dict(fixed),
        choices={"crop": _CROPS},
    )


_MODES: Final[Mapping[str, tuple[str, Mapping[str, str], str]]] = {
    "scale dimensions": ("size", {"width": "width", "height": "height", "crop": "fit"}, "crop"),
    "scale by multiplier": ("factor", {"multiplier": "factor"}, "stretch"),
    "scale longer dimension": ("longer", {"longer_size": "side"}, "stretch"),
    "scale shorter dimension": ("shorter", {"shorter_size": "side"}, "stretch"),
    "scale width": ("width", {"width": "width"}, "stretch"),
    "scale height": ("height", {"height": "height"}, "stretch"),
    "scale total pixels": ("megapixels", {"megapixels": "megapixels"}, "stretch"),
    "match size": ("match", {"match": "match", "crop": "fit"}, "crop"),
    "scale to multiple": ("multiple", {"multiple": "multiple"}, "crop"),
}
"""Their mode -> ours, its inputs and ours, and what is done if the proportions differ."""


def _resized(step: Step) -> Outputs:
    """A picture or a mask, resized by one of several modes."""
    by, names, fit = chosen(step, "resize_type", _MODES)
    source = step.needed("input")
    is_mask = kind_of(step, source) is PortKind.MASK
    inputs: dict[str, Any] = {"by": by, "fit": fit, "method": step.value("scale_method")}
    for theirs, ours in names.items():
        inputs[ours] = step.value(f"resize_type.{theirs}")
    if "crop" in names:
        crop = step.constant("resize_type.crop", "center")
        if crop not in list(_CROPS):
            message = f"its crop {crop!r} is not known here"
            raise Unsupported(message)
        inputs["fit"] = _CROPS[crop]
    if by == "match":
        _match(step, inputs, is_mask=is_mask)
    if is_mask:
        return [step.add("mask/resize", {"mask": source, **inputs}).out("mask")]
    return [step.add("image/resize", {"image": source, **inputs}).out("image")]


def _match(step: Step, inputs: dict[str, Any], *, is_mask: bool) -> None:
    """The size of another picture, or of a mask."""
    match = step.needed("resize_type.match")
    if kind_of(step, match) is not PortKind.MASK:
        return
    del inputs["match"]
    if is_mask:
        inputs["match_mask"] = match
        return
    size = step.add("mask/size", {"mask": match}, suffix="size")
    inputs |= {"by": "size", "width": size.out("width"), "height": size.out("height")}


def _padded(step: Step) -> Outputs:
    inputs = {
        "image": step.needed("image"),
        "by": "size",
        "width": step.value("target_width"),
        "height": step.value("target_height"),
        "fit": "pad",
        "method": step.value("interpolation"),
        "colour": chosen(step, "padding_color", COLOURS),
    }
    return [step.add("image/resize", inputs).out("image")]


def _cropped(step: Step) -> Outputs:
    """A region that is given as one value."""
    region = step.constant("crop_region", {})
    if not isinstance(region, Mapping):
        message = "its region is no rectangle"
        raise Unsupported(message)
    usual = {"x": 0, "y": 0, "width": 512, "height": 512}
    box = {name: region.get(name, value) for name, value in usual.items()}
    added = step.add("image/crop", {"image": step.needed("image"), **box, "clip": True})
    return [added.out("image")]


def _outpainted(step: Step) -> Outputs:
    sides = ("left", "top", "right", "bottom", "feathering")
    inputs = {name: step.value(name) for name in sides}
    added = step.add("image/pad", {"image": step.needed("image"), **inputs})
    return [added.out("image"), added.out("mask")]


# ---- several pictures ----------------------------------------------------------------------------


def _joined(step: Step, images: list[Value]) -> Outputs:
    if len(images) == 1:
        return images
    inputs = {"images": images, "resize": True, "fit": "crop", "method": "bilinear"}
    return [step.add("image/join", inputs).out("image")]


def _batch(step: Step) -> Outputs:
    return _joined(step, [step.needed("image1"), step.needed("image2")])


def _batched(step: Step) -> Outputs:
    images = numbered(step, "images")
    if not images:
        message = "no picture is connected"
        raise Unsupported(message)
    return _joined(step, images)


def _rebatched(step: Step) -> Outputs:
    step.warn(
        "the pictures go on as one batch, not as a list of batches: what samples them draws other "
        "noise for each"
    )
    return [step.needed("images")]


def _stitched(step: Step) -> Outputs:
    second = step.value("image2")
    if second is None:
        return [step.needed("image1")]
    inputs = {
        "first": step.needed("image1"),
        "second": second,
        "direction": step.value("direction"),
        "match_size": step.value("match_image_size"),
        "spacing": whole(step, "a + a % 2", a=step.value("spacing_width")),
        "colour": chosen(step, "spacing_color", COLOURS),
    }
    return [step.add("image/stitch", inputs).out("image")]


# ---- colours and filters -------------------------------------------------------------------------

_BLENDS: Final = {
    "normal": "normal",
    "multiply": "multiply",
    "screen": "screen",
    "overlay": "overlay",
    "soft_light": "soft-light",
    # Theirs is what is left of the first, never negative.
    "difference": "subtract",
}
_DITHERS: Final = ("none", "floyd-steinberg")
_TURNS: Final = {"90 degrees": "90", "180 degrees": "180", "270 degrees": "270"}
_FLIPS: Final = {"x-axis: vertically": "vertical", "y-axis: horizontally": "horizontal"}
_TRANSFERS: Final = {"reinhard_lab": "reinhard", "mkl_lab": "mkl", "histogram": "histogram"}
_SHARED: Final = {"per_frame": False, "uniform": True}


def hex_of(step: Step, name: str) -> str:
    """A colour that is given as a number.  Raises: Unsupported."""
    value = step.constant(name, 0)
    if not isinstance(value, int) or not 0 <= value <= _WHITE:
        message = f"its {name} {value!r} is no colour"
        raise Unsupported(message)
    return f"#{value:06x}"


def _solid(step: Step) -> Outputs:
    inputs = {
        "width": step.value("width"),
        "height": step.value("height"),
        "count": step.value("batch_size"),
        "colour": hex_of(step, "color"),
    }
    return [step.add("image/solid", inputs).out("image")]


def _sigma(step: Step, radius: Value | None) -> Value:
    """Their sigma counts in radii, ours in pixels."""
    return number(step, "min(max(a * b, 0.1), 256)", a=step.value("sigma"), b=radius)


def _blurred(step: Step) -> Outputs:
    radius = step.value("blur_radius")
    inputs = {"image": step.needed("image"), "radius": radius, "sigma": _sigma(step, radius)}
    return [step.add("image/blur", inputs).out("image")]


def _sharpened(step: Step) -> Outputs:
    radius = step.value("sharpen_radius") or Constant(1)
    inputs = {
        "image": step.needed("image"),
        "radius": radius,
        "sigma": _sigma(step, radius),
        "amount": number(step, "a * 10", a=step.value("alpha") or Constant(1.0)),
    }
    return [step.add("image/sharpen", inputs).out("image")]


def _quantized(step: Step) -> Outputs:
    dither = step.constant("dither", "none")
    if dither not in _DITHERS:
        message = f"the dither {dither!r} is not made here"
        raise Unsupported(message, "set it to floyd-steinberg, or to none")
    inputs = {"image": step.needed("image"), "colours": step.value("colors"), "dither": dither}
    return [step.add("image/quantize", inputs).out("image")]


def _turned(step: Step) -> Outputs:
    if step.constant("rotation") == "none":
        return [step.needed("image")]
    angle = chosen(step, "rotation", _TURNS)
    return [step.add("image/rotate", {"image": step.needed("image"), "angle": angle}).out("image")]


def _recoloured(step: Step) -> Outputs:
    stats = step.constant("source_stats", "per_frame")
    if stats not in list(_SHARED):
        message = f"colours measured by {stats!r} are not matched here"
        raise Unsupported(message, "set source_stats to per_frame or uniform")
    inputs = {
        "image": step.needed("image_target"),
        "reference": step.needed("image_ref"),
        "method": chosen(step, "method", _TRANSFERS),
        "strength": step.value("strength"),
        "together": _SHARED[stats],
    }
    return [step.add("image/colour-match", inputs).out("image")]


def _recompressed(step: Step) -> Outputs:
    crf = whole(step, "min(a, 51)", a=step.value("img_compression"))
    inputs = {"image": step.needed("image"), "crf": crf}
    return [step.add("image/recompress", inputs).out("image")]


# ---- models --------------------------------------------------------------------------------------


def _upscaler(step: Step) -> Outputs:
    """The name of a file; what enlarges with it loads it."""
    return [Constant(str(step.constant("model_name", "")))]


def _enlarged(step: Step) -> Outputs:
    name = str(step.constant("upscale_model", ""))
    model = step.uses_file("upscale_models", name) if name else ""
    inputs = {"image": step.needed("image"), "model": model}
    return [step.add("image/upscale-model", inputs).out("image")]


ENTRIES: Final[Mapping[str, Entry]] = {
    "ImageScale": _with_mode({"width": "width", "height": "height", "crop": "fit"}, ("by", "size")),
    "ImageScaleBy": _with_mode({"scale_by": "factor"}, ("by", "factor"), ("fit", "stretch")),
    "ImageScaleToTotalPixels": _with_mode(
        {"megapixels": "megapixels", "resolution_steps": "multiple"},
        ("by", "megapixels"),
        ("fit", "stretch"),
    ),
    "ImageScaleToMaxDimension": _with_mode(
        {"largest_size": "side"}, ("by", "longer"), ("fit", "stretch")
    ),
    "ResizeImageMaskNode": _resized,
    "ResizeAndPadImage": _padded,
    "FluxKontextImageScale": Direct("image/kontext-size", {"image": "image"}, _IMAGE),
    "ImageCrop": Direct(
        "image/crop",
        {name: name for name in ("image", "width", "height", "x", "y")},
        _IMAGE,
        set={"clip": True},
    ),
    "ImageCropV2": _cropped,
    "ImagePadForOutpaint": _outpainted,
    "ImageBatch": _batch,
    "BatchImagesNode": _batched,
    "RebatchImages": _rebatched,
    "ImageFromBatch": Direct(
        "image/from-batch",
        {"image": "image", "batch_index": "index", "length": "length"},
        _IMAGE,
        set={"clip": True},
    ),
    "RepeatImageBatch": Direct("image/repeat", {"image": "image", "amount": "amount"}, _IMAGE),
    "ImageStitch": _stitched,
    "EmptyImage": _solid,
    "ImageCompositeMasked": Direct(
        "image/composite",
        {name: name for name in ("destination", "source", "mask", "x", "y", "resize_source")},
        _IMAGE,
    ),
    "ImageBlend": Direct(
        "image/blend",
        {
            "image1": "first",
            "image2": "second",
            "blend_factor": "factor",
            "blend_mode": "mode",
        },
        _IMAGE,
        choices={"blend_mode": _BLENDS},
    ),
    "ImageInvert": Direct("image/invert", {"image": "image"}, _IMAGE),
    "ImageBlur": _blurred,
    "ImageSharpen": _sharpened,
    "ImageQuantize": _quantized,
    "ImageRotate": _turned,
    "ImageFlip": Direct(
        "image/flip",
        {"image": "image", "flip_method": "axis"},
        _IMAGE,
        choices={"flip_method": _FLIPS},
    ),
    "ColorTransfer": _recoloured,
    "Canny": Direct(
        "image/canny",
        {"image": "image", "low_threshold": "low", "high_threshold": "high"},
        _IMAGE,
    ),
    "LTXVPreprocess": _recompressed,
    "UpscaleModelLoader": _upscaler,
    "ImageUpscaleWithModel": _enlarged,
    "ImageCompare": ignored("it only shows two pictures beside each other on the page"),
    "GLSLShader": refused("it runs a program on the graphics card of the page"),
}
