"""Stable Diffusion 1.5, 2 and XL: one U-Net, told apart by the width of the text features.

The refiner of XL by how many numbers it is told of the picture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from inline_core.loading.architectures.architecture import (
    Architecture,
    Config,
    Layouts,
    whole_numbers,
)
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

_TIME_IDS: Final = 256  # width of one encoded size of SDXL; the class cannot tell it from the sum
_HEADS: Final = 8  # of SD1.5; models with linear projections have heads of 64 instead
_HEAD_DIM: Final = 64
_WIDTHS: Final = {768: "sd15", 1024: "sd2", 2048: "sdxl"}
_REFINER_NUMBERS: Final = 5  # of the picture, beside what is pooled: the last is how it is liked
# Of SDXL alone: it is told the sizes of the picture.
_SIZES: Final = ("label_emb.0.0.weight", "add_embedding.linear_1.weight")
_INPAINT_CHANNELS, _EDIT_CHANNELS = 9, 8


class _Level:
    """One resolution of the U-Net: channels, residual blocks, transformer layers per block."""

    def __init__(self) -> None:
        self.channels = 0
        self.blocks = 0
        self.depth = 0


def _original_levels(shapes: Shapes) -> list[_Level]:
    levels = [_Level()]
    for index in range(1, shapes.count("input_blocks.")):
        start = f"input_blocks.{index}."
        if f"{start}0.op.weight" in shapes:
            levels.append(_Level())
            continue
        level = levels[-1]
        level.channels = shapes.rows(f"{start}0.in_layers.2.weight")
        level.blocks += 1
        level.depth = shapes.count(f"{start}1.transformer_blocks.")
    return levels


def _diffusers_levels(shapes: Shapes) -> list[_Level]:
    levels = []
    for index in range(shapes.count("down_blocks.")):
        level, start = _Level(), f"down_blocks.{index}."
        level.channels = shapes.rows(f"{start}resnets.0.conv1.weight")
        level.blocks = shapes.count(f"{start}resnets.")
        level.depth = shapes.count(f"{start}attentions.0.transformer_blocks.")
        levels.append(level)
    return levels


def text_width(shapes: Shapes) -> int:
    """Width of the text features that the cross-attention takes; 0 if it has none."""
    for name in shapes.tensors:
        if name.endswith("attn2.to_k.weight"):
            return shapes.columns(name)
    return 0


def down_path(shapes: Shapes) -> Config:
    """Arguments that the U-Net and its ControlNets have in common."""
    original = "input_blocks.0.0.weight" in shapes
    levels = _original_levels(shapes) if original else _diffusers_levels(shapes)
    middle = shapes.count(
        "middle_block.1.transformer_blocks.", "mid_block.attentions.0.transformer_blocks."
    )
    depths = [level.depth or 1 for level in levels]
    if not levels[-1].depth and middle:
        depths[-1] = middle  # the middle takes the depth of the last level
    channels = tuple(level.channels for level in levels)
    linear = _linear_projection(shapes)
    config: Config = {
        "in_channels": shapes.columns("input_blocks.0.0.weight", "conv_in.weight"),
        "block_out_channels": channels,
        "down_block_types": tuple(
            "CrossAttnDownBlock2D" if level.depth else "DownBlock2D" for level in levels
        ),
        "layers_per_block": levels[0].blocks,
        "cross_attention_dim": text_width(shapes),
        "transformer_layers_per_block": depths,
        "use_linear_projection": linear,
        "attention_head_dim": [size // _HEAD_DIM for size in channels] if linear else _HEADS,
    }
    if shapes.has(*_SIZES):
        config |= {
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": _TIME_IDS,
            "projection_class_embeddings_input_dim": shapes.columns(*_SIZES),
        }
    return config


def _linear_projection(shapes: Shapes) -> bool:
    for name in shapes.tensors:
        if name.endswith(".proj_in.weight"):
            return len(shapes.shape(name)) == 2  # noqa: PLR2004 - a matrix, not a 1x1 convolution
    return False


def _config(shapes: Shapes) -> Config:
    config = down_path(shapes)
    return config | {
        "out_channels": shapes.rows("out.2.weight", "conv_out.weight"),
        "up_block_types": tuple(
            "CrossAttnUpBlock2D" if kind.startswith("Cross") else "UpBlock2D"
            for kind in reversed(config["down_block_types"])
        ),
    }


def _variant(shapes: Shapes, config: Config) -> str:
    kind = {_INPAINT_CHANNELS: "inpaint", _EDIT_CHANNELS: "edit"}.get(config["in_channels"], "")
    return kind or prediction_told(shapes)


def prediction_told(shapes: Shapes) -> str:
    """What a file says with empty tensors about how its model predicts: v, v-zsnr, "" (noise)."""
    if "v_pred" not in shapes:
        return ""
    return "v-zsnr" if "ztsnr" in shapes else "v"


def _geometry(_: Shapes, config: Config) -> dict[str, int]:
    """Beside the numbers: channels of the first level, and whether it has attention."""
    attended = config["down_block_types"][0].startswith("Cross")
    first = {"channels": config["block_out_channels"][0], "attended": int(attended)}
    return whole_numbers(Shapes({}), config) | first


def _is(family: str) -> Callable[[Shapes], bool]:
    """Tell the three by the width of their text features; others by what SDXL alone is given."""

    def condition(shapes: Shapes) -> bool:
        sized = shapes.has(*_SIZES)
        width = text_width(shapes)
        if sized and shapes.columns(*_SIZES) - width == _REFINER_NUMBERS * _TIME_IDS:
            return family == "sdxl-refiner"
        return _WIDTHS.get(width, "sdxl" if sized else "sd15") == family

    return condition


LAYOUTS: Final[Layouts] = (
    ("original", ("input_blocks.0.0.weight",)),
    ("diffusers", ("down_blocks.0.resnets.0.norm1.weight", "time_embedding.linear_1.weight")),
)
NAMES: Final = {"sd15": "SD1.5", "sd2": "SD2", "sdxl": "SDXL", "sdxl-refiner": "SDXL Refiner"}
STABLE_DIFFUSION: Final = tuple(
    Architecture(
        family,
        NAMES[family],
        Role.DIFFUSION_MODEL,
        LAYOUTS,
        class_name="UNet2DConditionModel",
        config=_config,
        geometry=_geometry,
        variant=_variant,
        condition=_is(family),
    )
    for family in NAMES
)


def _controlnet(shapes: Shapes) -> Config:
    config = down_path(shapes)
    hint = ("input_hint_block.0.weight", "controlnet_cond_embedding.conv_in.weight")
    return config | {"conditioning_channels": shapes.columns(*hint)}


CONTROLNETS: Final = tuple(
    Architecture(
        family,
        NAMES[family],
        Role.CONTROLNET,
        (
            ("original", ("input_hint_block.0.weight", "zero_convs.0.0.weight")),
            ("diffusers", ("controlnet_cond_embedding.conv_in.weight",)),
        ),
        class_name="ControlNetModel",
        config=_controlnet,
        condition=_is(family),
    )
    for family in NAMES
)
