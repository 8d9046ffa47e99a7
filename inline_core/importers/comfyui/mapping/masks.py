"""Masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from inline_core.importers.comfyui.mapping.pictures import hex_of
from inline_core.importers.comfyui.mapping.step import Direct, Entry, Outputs, Step
from inline_core.importers.comfyui.mapping.values import Constant

_MASK: Final = ("mask",)
_SIDES: Final = {name: name for name in ("mask", "left", "top", "right", "bottom")}
_BOX: Final = {name: name for name in ("mask", "x", "y", "width", "height")}


def _of_channel(step: Step) -> Outputs:
    """A channel as a mask; alpha as it is, not turned around as in Load Image."""
    inputs = {"image": step.needed("image"), "channel": step.value("channel") or Constant("red")}
    return [step.add("mask/from-channel", inputs).out("mask")]


def _of_colour(step: Step) -> Outputs:
    inputs = {"image": step.needed("image"), "colour": hex_of(step, "color"), "tolerance": 0}
    return [step.add("mask/from-colour", inputs).out("mask")]


def _preview(step: Step) -> Outputs:
    """A sink that shows a mask as a grey picture, and gives the mask on."""
    mask = step.needed("mask")
    grey = step.add("mask/to-image", {"mask": mask}, suffix="grey")
    step.sink("output/image", {"image": grey.out("image"), "preview": True})
    return [mask]


ENTRIES: Final[Mapping[str, Entry]] = {
    "SolidMask": Direct("mask/solid", {name: name for name in ("value", "width", "height")}, _MASK),
    "InvertMask": Direct("mask/invert", {"mask": "mask"}, _MASK),
    "GrowMask": Direct(
        "mask/grow",
        {name: name for name in ("mask", "expand", "tapered_corners")},
        _MASK,
    ),
    "FeatherMask": Direct("mask/feather", _SIDES, _MASK),
    "ThresholdMask": Direct("mask/threshold", {"mask": "mask", "value": "value"}, _MASK),
    "MaskComposite": Direct(
        "mask/combine",
        {name: name for name in ("destination", "source", "x", "y", "operation")},
        _MASK,
    ),
    "CropMask": Direct("mask/crop", _BOX, _MASK, set={"clip": True}),
    "MaskPreview": _preview,
    "ImageToMask": _of_channel,
    "ImageColorToMask": _of_colour,
    "MaskToImage": Direct("mask/to-image", {"mask": "mask"}, ("image",)),
    "JoinImageWithAlpha": Direct(
        "image/join-alpha", {"image": "image", "alpha": "alpha"}, ("image",), set={"invert": True}
    ),
    "SplitImageWithAlpha": Direct(
        "image/split-alpha",
        {"image": "image"},
        ("image", "mask"),
        set={"invert": True, "quiet": True},
    ),
}
