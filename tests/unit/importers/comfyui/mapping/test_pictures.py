"""Pictures: each entry gives the node that does the same, with the same numbers."""

from __future__ import annotations

from typing import Any

import pytest

from inline_core.importers.comfyui.converting import NodeState
from tests.unit.importers.comfyui.mapping.prompts import (
    Prompt,
    converted,
    nodes_of,
    report_of,
    step,
)

IMAGE = "i/parts.image"
MASK = "i/parts.mask"
LOADED = {"i": step("LoadImage", image="a.png"), "j": step("LoadImage", image="b.png")}
OTHER = "j/parts.image"


def shown(kind: str, **inputs: Any) -> Prompt:
    """A prompt with two pictures, a node `n`, and what saves it."""
    return LOADED | {"n": step(kind, **inputs), "s": step("SaveImage", images=["n", 0])}


def becomes(kind: str, inputs: dict[str, Any], output: str = "image") -> dict[str, Any]:
    """The node that stands for `n`, once its graph was found valid."""
    nodes = nodes_of(converted(shown(kind, **inputs)))
    assert nodes["s"]["image"] == f"n.{output}"
    return nodes["n"]


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "ImageScale",
        {"image": ["i", 0], "upscale_method": "area", "width": 64, "height": 0, "crop": "center"},
        {"type": "image/resize", "image": IMAGE, "by": "size", "width": 64, "height": 0,
         "fit": "crop", "method": "area"},
    ),
    (
        "ImageScale",
        {"image": ["i", 0], "upscale_method": "lanczos", "width": 64, "height": 32,
         "crop": "disabled"},
        {"type": "image/resize", "image": IMAGE, "by": "size", "width": 64, "height": 32,
         "fit": "stretch", "method": "lanczos"},
    ),
    (
        "ImageScaleBy",
        {"image": ["i", 0], "upscale_method": "nearest-exact", "scale_by": 1.5},
        {"type": "image/resize", "image": IMAGE, "by": "factor", "factor": 1.5, "fit": "stretch",
         "method": "nearest-exact"},
    ),
    (
        "ImageScaleToTotalPixels",
        {"image": ["i", 0], "upscale_method": "bicubic", "megapixels": 1.5,
         "resolution_steps": 16},
        {"type": "image/resize", "image": IMAGE, "by": "megapixels", "megapixels": 1.5,
         "multiple": 16, "fit": "stretch", "method": "bicubic"},
    ),
    (
        "ImageScaleToMaxDimension",
        {"image": ["i", 0], "upscale_method": "bilinear", "largest_size": 768},
        {"type": "image/resize", "image": IMAGE, "by": "longer", "side": 768, "fit": "stretch",
         "method": "bilinear"},
    ),
    (
        "ResizeAndPadImage",
        {"image": ["i", 0], "target_width": 64, "target_height": 32, "padding_color": "white",
         "interpolation": "area"},
        {"type": "image/resize", "image": IMAGE, "by": "size", "width": 64, "height": 32,
         "fit": "pad", "method": "area", "colour": "#ffffff"},
    ),
    (
        "FluxKontextImageScale",
        {"image": ["i", 0]},
        {"type": "image/kontext-size", "image": IMAGE},
    ),
    (
        "ImageCrop",
        {"image": ["i", 0], "x": 1, "y": 2, "width": 30, "height": 40},
        {"type": "image/crop", "image": IMAGE, "x": 1, "y": 2, "width": 30, "height": 40,
         "clip": True},
    ),
    (
        "ImageCropV2",
        {"image": ["i", 0], "crop_region": {"x": 5, "y": 6, "width": 7, "height": 8}},
        {"type": "image/crop", "image": IMAGE, "x": 5, "y": 6, "width": 7, "height": 8,
         "clip": True},
    ),
    (
        "ImagePadForOutpaint",
        {"image": ["i", 0], "left": 8, "top": 0, "right": 16, "bottom": 24, "feathering": 4},
        {"type": "image/pad", "image": IMAGE, "left": 8, "top": 0, "right": 16, "bottom": 24,
         "feathering": 4},
    ),
    (
        "ImageBatch",
        {"image1": ["i", 0], "image2": ["j", 0]},
        {"type": "image/join", "images": [IMAGE, OTHER], "resize": True, "fit": "crop",
         "method": "bilinear"},
    ),
    (
        "BatchImagesNode",
        {"images__image0": ["j", 0], "images__image1": ["i", 0], "images__image2": ["j", 0]},
        {"type": "image/join", "images": [OTHER, IMAGE, OTHER], "resize": True, "fit": "crop",
         "method": "bilinear"},
    ),
    (
        "ImageFromBatch",
        {"image": ["i", 0], "batch_index": -1, "length": 3},
        {"type": "image/from-batch", "image": IMAGE, "index": -1, "length": 3, "clip": True},
    ),
    (
        "RepeatImageBatch",
        {"image": ["i", 0], "amount": 3},
        {"type": "image/repeat", "image": IMAGE, "amount": 3},
    ),
    (
        "ImageStitch",
        {"image1": ["i", 0], "image2": ["j", 0], "direction": "down", "match_image_size": False,
         "spacing_width": 3, "spacing_color": "red"},
        {"type": "image/stitch", "first": IMAGE, "second": OTHER, "direction": "down",
         "match_size": False, "spacing": 4, "colour": "#ff0000"},
    ),
    (
        "EmptyImage",
        {"width": 64, "height": 32, "batch_size": 2, "color": 0x0102FF},
        {"type": "image/solid", "width": 64, "height": 32, "count": 2, "colour": "#0102ff"},
    ),
    (
        "ImageCompositeMasked",
        {"destination": ["i", 0], "source": ["j", 0], "x": 3, "y": 4, "resize_source": True,
         "mask": ["j", 1]},
        {"type": "image/composite", "destination": IMAGE, "source": OTHER, "mask": "j/parts.mask",
         "x": 3, "y": 4, "resize_source": True},
    ),
    (
        "ImageBlend",
        {"image1": ["i", 0], "image2": ["j", 0], "blend_factor": 0.3, "blend_mode": "difference"},
        {"type": "image/blend", "first": IMAGE, "second": OTHER, "factor": 0.3,
         "mode": "subtract"},
    ),
    ("ImageInvert", {"image": ["i", 0]}, {"type": "image/invert", "image": IMAGE}),
    (
        "ImageBlur",
        {"image": ["i", 0], "blur_radius": 6, "sigma": 0.5},
        {"type": "image/blur", "image": IMAGE, "radius": 6, "sigma": 3.0},
    ),
    (
        "ImageSharpen",
        {"image": ["i", 0], "sharpen_radius": 2, "sigma": 0.5, "alpha": 0.25},
        {"type": "image/sharpen", "image": IMAGE, "radius": 2, "sigma": 1.0, "amount": 2.5},
    ),
    (
        "ImageQuantize",
        {"image": ["i", 0], "colors": 16, "dither": "floyd-steinberg"},
        {"type": "image/quantize", "image": IMAGE, "colours": 16, "dither": "floyd-steinberg"},
    ),
    (
        "ImageRotate",
        {"image": ["i", 0], "rotation": "270 degrees"},
        {"type": "image/rotate", "image": IMAGE, "angle": "270"},
    ),
    (
        "ImageFlip",
        {"image": ["i", 0], "flip_method": "x-axis: vertically"},
        {"type": "image/flip", "image": IMAGE, "axis": "vertical"},
    ),
    (
        "ColorTransfer",
        {"image_target": ["i", 0], "image_ref": ["j", 0], "method": "mkl_lab",
         "source_stats": "uniform", "strength": 0.5},
        {"type": "image/colour-match", "image": IMAGE, "reference": OTHER, "method": "mkl",
         "strength": 0.5, "together": True},
    ),
    (
        "Canny",
        {"image": ["i", 0], "low_threshold": 0.1, "high_threshold": 0.3},
        {"type": "image/canny", "image": IMAGE, "low": 0.1, "high": 0.3},
    ),
    (
        "LTXVPreprocess",
        {"image": ["i", 0], "img_compression": 90},
        {"type": "image/recompress", "image": IMAGE, "crf": 51},
    ),
    (
        "JoinImageWithAlpha",
        {"image": ["i", 0], "alpha": ["j", 1]},
        {"type": "image/join-alpha", "image": IMAGE, "alpha": "j/parts.mask", "invert": True},
    ),
    ("MaskToImage", {"mask": ["i", 1]}, {"type": "mask/to-image", "mask": MASK}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "inputs", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_pictures(kind: str, inputs: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert becomes(kind, inputs) == wanted


@pytest.mark.parametrize(
    ("mode", "values", "wanted"),
    [
        (
            "scale dimensions",
            {"width": 64, "height": 32, "crop": "disabled"},
            {"by": "size", "width": 64, "height": 32, "fit": "stretch"},
        ),
        ("scale dimensions", {"width": 64, "height": 32}, {"by": "size", "width": 64, "height": 32, "fit": "crop"}),
        ("scale by multiplier", {"multiplier": 0.5}, {"by": "factor", "factor": 0.5, "fit": "stretch"}),
        ("scale longer dimension", {"longer_size": 64}, {"by": "longer", "side": 64, "fit": "stretch"}),
        ("scale shorter dimension", {"shorter_size": 64}, {"by": "shorter", "side": 64, "fit": "stretch"}),
        ("scale width", {"width": 64}, {"by": "width", "width": 64, "fit": "stretch"}),
        ("scale height", {"height": 64}, {"by": "height", "height": 64, "fit": "stretch"}),
        ("scale total pixels", {"megapixels": 2}, {"by": "megapixels", "megapixels": 2, "fit": "stretch"}),
        ("match size", {"match": ["j", 0]}, {"by": "match", "match": OTHER, "fit": "crop"}),
        ("scale to multiple", {"multiple": 16}, {"by": "multiple", "multiple": 16, "fit": "crop"}),
    ],
)  # fmt: skip
def test_a_resize_has_many_modes(mode: str, values: dict[str, Any], wanted: dict[str, Any]) -> None:
    dotted = {f"resize_type__{name}": value for name, value in values.items()}
    same = {"resize_type": mode, "scale_method": "area", **dotted}
    assert becomes("ResizeImageMaskNode", {"input": ["i", 0], **same}) == {
        "type": "image/resize", "image": IMAGE, "method": "area", **wanted,
    }  # fmt: skip
    prompt = LOADED | {
        "n": step("ResizeImageMaskNode", input=["i", 1], **same),
        "s": step("MaskPreview", mask=["n", 0]),
    }
    assert nodes_of(converted(prompt))["n"] == {
        "type": "mask/resize", "mask": MASK, "method": "area", **wanted,
    }  # fmt: skip


def test_sizes_of_masks_can_be_matched() -> None:
    same = {"resize_type": "match size", "resize_type__match": ["j", 1], "scale_method": "area"}
    of_mask = LOADED | {
        "n": step("ResizeImageMaskNode", input=["i", 1], **same),
        "s": step("MaskPreview", mask=["n", 0]),
    }
    node = nodes_of(converted(of_mask))["n"]
    assert (node["by"], node["match_mask"]) == ("match", "j/parts.mask")
    nodes = nodes_of(converted(shown("ResizeImageMaskNode", input=["i", 0], **same)))
    assert nodes["n/size"] == {"type": "mask/size", "mask": "j/parts.mask"}
    assert nodes["n"]["width"] == "n/size.width"
    assert nodes["n"]["by"] == "size"


def test_a_mask_is_known_behind_a_switch() -> None:
    prompt = LOADED | {
        "l": step("StringContains", string=["t", 0], substring="x", case_sensitive=True),
        "t": step("PreviewAny", source=["i", 0]),
        "w": step("ComfySwitchNode", switch=["l", 0], on_false=["i", 1], on_true=["j", 1]),
        "n": step("ResizeImageMaskNode", input=["w", 0], resize_type="scale width",
                  resize_type__width=64, scale_method="area"),
        "s": step("MaskPreview", mask=["n", 0]),
    }  # fmt: skip
    nodes = nodes_of(converted(prompt))
    assert nodes["n"]["type"] == "mask/resize"
    assert nodes["w"]["yes"] == "l.boolean"


def test_numbers_can_be_computed_while_the_graph_runs() -> None:
    prompt = shown("ImageScale", image=["i", 0], upscale_method="area", width=["z", 0],
                   height=["m", 1], crop="disabled")  # fmt: skip
    prompt |= {
        "z": step("GetImageSize", image=["j", 0]),
        "m": step("ComfyMathExpression", expression="a // 2", values__a=["z", 1]),
    }
    nodes = nodes_of(converted(prompt))
    assert nodes["n"]["width"] == "z.width"
    assert nodes["n"]["height"] == "m.whole"
    assert nodes["m"] == {"type": "number/expression", "expression": "a // 2", "a": "z.height"}
    blurred = shown("ImageBlur", image=["i", 0], blur_radius=["z", 0], sigma=0.5)
    blurred["z"] = step("GetImageSize", image=["j", 0])
    nodes = nodes_of(converted(blurred))
    assert nodes["n"]["sigma"] == "n/number.number"
    assert nodes["n/number"]["b"] == "z.width"


def test_nodes_that_give_on_what_they_get() -> None:
    alone: list[tuple[str, dict[str, Any]]] = [
        ("ImageStitch", {"image1": ["i", 0], "direction": "right"}),
        ("BatchImagesNode", {"images__image0": ["i", 0]}),
        ("ImageRotate", {"image": ["i", 0], "rotation": "none"}),
        ("RebatchImages", {"images": ["i", 0], "batch_size": 4096}),
    ]
    for kind, inputs in alone:
        result = converted(shown(kind, **inputs))
        assert nodes_of(result)["s"]["image"] == IMAGE
        assert report_of(result, "n").state is NodeState.FOLDED
    assert report_of(result, "n").warnings


def test_pictures_come_in_the_order_of_their_numbers() -> None:
    inputs = {f"images__image{number}": ["ij"[number % 2], 0] for number in (10, 9, 1, 2)}
    joined = becomes("BatchImagesNode", inputs)["images"]
    assert joined == [OTHER, IMAGE, OTHER, IMAGE]  # 1, 2, 9, 10


def test_a_region_can_come_from_another_node() -> None:
    prompt = shown("ImageCropV2", image=["i", 0], crop_region=["r", 0])
    prompt["r"] = step("PrimitiveBoundingBox", x=1, y=2, width=30, height=40)
    node = nodes_of(converted(prompt))["n"]
    assert [node[name] for name in ("x", "y", "width", "height")] == [1, 2, 30, 40]


def test_an_upscaler_is_a_file() -> None:
    prompt = shown("ImageUpscaleWithModel", upscale_model=["u", 0], image=["i", 0])
    prompt["u"] = step("UpscaleModelLoader", model_name="m.safetensors")
    result = converted(prompt)
    assert nodes_of(result)["n"] == {
        "type": "image/upscale-model", "image": IMAGE, "model": "m.safetensors",
    }  # fmt: skip
    assert [(file.category, file.name) for file in result.files] == [
        ("upscale_models", "m.safetensors")
    ]


@pytest.mark.parametrize(
    ("kind", "inputs", "said"),
    [
        ("ImageQuantize", {"image": ["i", 0], "dither": "bayer-4"}, "bayer-4"),
        ("EmptyImage", {"color": "red"}, "is no colour"),
        ("GLSLShader", {"images__image0": ["i", 0]}, "graphics card"),
        ("BatchImagesNode", {}, "no picture"),
        ("ImageScale", {"image": ["i", 0], "crop": "left"}, "'left' is not known"),
        ("ImageCropV2", {"image": ["i", 0], "crop_region": "all"}, "no rectangle"),
        ("ResizeImageMaskNode", {"input": ["i", 0], "resize_type": "odd"}, "'odd' is not known"),
        (
            "ResizeImageMaskNode",
            {"input": ["i", 0], "resize_type": "match size", "resize_type__match": ["j", 0],
             "resize_type__crop": "odd"},
            "'odd'",
        ),
        ("ColorTransfer", {"image_target": ["i", 0], "image_ref": ["j", 0],
                           "source_stats": "target_frame"}, "target_frame"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(kind: str, inputs: dict[str, Any], said: str) -> None:
    report = report_of(converted(shown(kind, **inputs)), "n")
    assert report.state is NodeState.UNSUPPORTED
    assert said in report.reason


def test_a_comparison_on_the_page_is_left_out() -> None:
    prompt = LOADED | {
        "c": step("ImageCompare", compare_view="", image_a=["i", 0], image_b=["j", 0]),
        "s": step("SaveImage", images=["i", 0]),
    }
    result = converted(prompt)
    assert report_of(result, "c").state is NodeState.IGNORED
    assert set(nodes_of(result)) == {"i", "i/parts", "s"}
