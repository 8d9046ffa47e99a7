"""The VAEs of Wan 2.1 (also Qwen-Image and Krea 2), Wan 2.2 and Qwen-Image 2.1."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config, Layouts
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

_PICTURE_CHANNELS: Final = 3


class _Levels:
    """Channels, residual blocks and temporal steps of the encoder's levels."""

    def __init__(self) -> None:
        self.channels: list[int] = []
        self.blocks = 0
        self.temporal: list[bool] = []


def _flat_levels(shapes: Shapes) -> _Levels:
    """Wan 2.1: one list of blocks, in which a resampling ends a level."""
    levels, channels = _Levels(), 0
    start = "encoder.downsamples." if "encoder.conv1.weight" in shapes else "encoder.down_blocks."
    for index in range(shapes.count(start)):
        block = f"{start}{index}."
        if f"{block}resample.1.weight" in shapes:
            levels.channels.append(channels)
            levels.temporal.append(f"{block}time_conv.weight" in shapes)
            continue
        channels = shapes.rows(f"{block}residual.2.weight", f"{block}conv1.weight")
        levels.blocks += not levels.channels
    levels.channels.append(channels)
    return levels


def _nested_levels(shapes: Shapes) -> _Levels:
    """Wan 2.2 and Qwen-Image 2.1: a list of levels with their blocks."""
    levels = _Levels()
    original = "encoder.downsamples.0.downsamples.0.residual.2.weight" in shapes
    start = "encoder.downsamples." if original else "encoder.down_blocks."
    for index in range(shapes.count(start)):
        inner = f"{start}{index}.downsamples." if original else f"{start}{index}.resnets."
        levels.channels.append(shapes.rows(f"{inner}0.residual.2.weight", f"{inner}0.conv1.weight"))
        blocks = shapes.count(inner)
        last = f"{inner}{blocks - 1}." if original else f"{start}{index}.downsampler."
        if f"{last}resample.1.weight" in shapes:
            levels.temporal.append(f"{last}time_conv.weight" in shapes)
            blocks -= original
        levels.blocks = blocks
    return levels


def _config(shapes: Shapes) -> Config:
    residual = shapes.has(
        "encoder.downsamples.0.downsamples.0.residual.2.weight",
        "encoder.down_blocks.0.resnets.0.conv1.weight",
    )
    levels = _nested_levels(shapes) if residual else _flat_levels(shapes)
    base = shapes.rows("encoder.conv1.weight", "encoder.conv_in.weight")
    multiples = [size // base for size in levels.channels]
    decoder_base = shapes.rows("decoder.head.0.gamma", "decoder.norm_out.gamma") // multiples[0]
    in_channels = shapes.columns("encoder.conv1.weight", "encoder.conv_in.weight")
    patch = 2 if in_channels == 4 * _PICTURE_CHANNELS else 1
    config: Config = {
        "base_dim": base,
        "z_dim": shapes.columns("decoder.conv1.weight", "decoder.conv_in.weight"),
        "dim_mult": multiples,
        "num_res_blocks": levels.blocks,
        "temperal_downsample": levels.temporal,
        "is_residual": residual,
        "in_channels": in_channels,
        "out_channels": shapes.rows("decoder.head.2.weight", "decoder.conv_out.weight"),
        "scale_factor_temporal": 2 ** sum(levels.temporal),
        "scale_factor_spatial": patch * 2 ** len(levels.temporal),
    }
    if decoder_base != base:
        config["decoder_base_dim"] = decoder_base
    if patch > 1:
        config["patch_size"] = patch
    return config


def _geometry(_: Shapes, config: Config) -> dict[str, int]:
    return {
        "latent_channels": config["z_dim"],
        "factor": config["scale_factor_spatial"],
        "factor_t": config["scale_factor_temporal"],
    }


def is_flat_picture(shapes: Shapes) -> bool:
    """Say whether its convolutions have no time axis, as those of Qwen-Image 2.1."""
    return len(shapes.shape("decoder.conv1.weight", "decoder.conv_in.weight")) == 4  # noqa: PLR2004


_LAYOUTS: Final[Layouts] = (
    ("original", ("decoder.middle.0.residual.0.gamma",)),
    ("diffusers", ("decoder.mid_block.resnets.0.norm1.gamma", "quant_conv.weight")),
)
AUTOENCODER_QWEN_IMAGE_2_1: Final = Architecture(
    "autoencoder-kl-qwen-image-2.1",
    "Qwen-Image 2.1",
    Role.VAE,
    _LAYOUTS,
    class_name="AutoencoderKLQwenImage21",
    config=_config,
    geometry=_geometry,
    condition=is_flat_picture,
    evidence="decoder.* keys",
)
# AutoencoderKLQwenImage has the same tensors: one class and one family serve both.
AUTOENCODER_WAN: Final = Architecture(
    "autoencoder-kl-wan",
    "Wan",
    Role.VAE,
    _LAYOUTS,
    class_name="AutoencoderKLWan",
    config=_config,
    geometry=_geometry,
    variant=lambda _, config: "2.2" if config["is_residual"] else "2.1",
    evidence="decoder.* keys",
)
