"""The video VAEs of HunyuanVideo, HunyuanVideo 1.5 and MiniMax H3."""

from __future__ import annotations

import math
from typing import Final

from inline_core.loading.architectures.architecture import ALL_FRAMES, Architecture, Config
from inline_core.loading.architectures.image_vae import NORM_GROUPS
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role


def _levels(shapes: Shapes) -> Config:
    count = shapes.count("encoder.down.", "encoder.down_blocks.")
    channels = tuple(
        shapes.rows(
            f"encoder.down.{level}.block.0.conv1.conv.weight",
            f"encoder.down_blocks.{level}.resnets.0.conv1.conv.weight",
        )
        for level in range(count)
    )
    return {
        "in_channels": shapes.columns("encoder.conv_in.conv.weight"),
        "out_channels": shapes.rows("decoder.conv_out.conv.weight"),
        "latent_channels": shapes.columns("decoder.conv_in.conv.weight"),
        "block_out_channels": channels,
        "layers_per_block": shapes.count("encoder.down.0.block.", "encoder.down_blocks.0.resnets."),
    }


def _hunyuan(shapes: Shapes) -> Config:
    # The strides of the downsampling (8 x 8 x 4) are in no shape: the class has the published ones.
    config = _levels(shapes)
    channels = config["block_out_channels"]
    return config | {
        "down_block_types": ("HunyuanVideoDownBlock3D",) * len(channels),
        "up_block_types": ("HunyuanVideoUpBlock3D",) * len(channels),
        "norm_num_groups": math.gcd(NORM_GROUPS, *channels),
        "mid_block_add_attention": shapes.has(
            "decoder.mid.attn_1.q.weight", "decoder.mid_block.attentions.0.to_q.weight"
        ),
    }


def _hunyuan_geometry(_: Shapes, config: Config) -> dict[str, int]:
    return {"latent_channels": config["latent_channels"], "factor": 8, "factor_t": 4}


AUTOENCODER_HUNYUAN_VIDEO: Final = Architecture(
    "autoencoder-kl-hunyuan-video",
    "HunyuanVideo",
    Role.VAE,
    (
        ("original", ("encoder.mid.block_1.norm1.weight", "encoder.conv_in.conv.weight")),
        (
            "diffusers",
            ("encoder.mid_block.resnets.0.norm1.weight", "encoder.conv_in.conv.weight"),
        ),
    ),
    class_name="AutoencoderKLHunyuanVideo",
    config=_hunyuan,
    geometry=_hunyuan_geometry,
    evidence="decoder.* keys",
)


def _hunyuan_1_5(shapes: Shapes) -> Config:
    """Halvings: one for each downsampling; those that also halve time make 8 of one channel."""
    config = _levels(shapes)
    channels = config["block_out_channels"]
    halvings = [
        level
        for level in range(len(channels))
        if shapes.has(
            f"encoder.down.{level}.downsample.conv.conv.weight",
            f"encoder.down_blocks.{level}.downsamplers.0.conv.conv.weight",
        )
    ]
    in_time = sum(
        channels[level + 1]
        == 8
        * shapes.rows(
            f"encoder.down.{level}.downsample.conv.conv.weight",
            f"encoder.down_blocks.{level}.downsamplers.0.conv.conv.weight",
        )
        for level in halvings
    )
    return config | {
        "spatial_compression_ratio": 2 ** len(halvings),
        "temporal_compression_ratio": 2**in_time,
    }


def _hunyuan_1_5_geometry(_: Shapes, config: Config) -> dict[str, int]:
    return {
        "latent_channels": config["latent_channels"],
        "factor": config["spatial_compression_ratio"],
        "factor_t": config["temporal_compression_ratio"],
        ALL_FRAMES: 1,
    }


AUTOENCODER_HUNYUAN_VIDEO_1_5: Final = Architecture(
    "autoencoder-kl-hunyuan-video-1.5",
    "HunyuanVideo 1.5",
    Role.VAE,
    (
        ("original", ("encoder.mid.block_1.norm1.gamma", "encoder.conv_in.conv.weight")),
        ("diffusers", ("encoder.mid_block.resnets.0.norm1.gamma", "encoder.conv_in.conv.weight")),
    ),
    class_name="AutoencoderKLHunyuanVideo15",
    config=_hunyuan_1_5,
    geometry=_hunyuan_1_5_geometry,
    evidence="decoder.* keys",
)

_H3_HEAD_DIM: Final = 64  # of the transformer decoder; the class default, in no shape


def _minimax_h3(shapes: Shapes) -> Config:
    """Strides and the window of the decoder are in no shape: the class has the published ones."""
    count = shapes.count("encoder.down_blocks.")
    channels = tuple(
        shapes.rows(f"encoder.down_blocks.{level}.resnets.0.conv1.weight") for level in range(count)
    )
    _, registers, inner = shapes.shape("decoder.register_tokens")
    return {
        "in_channels": shapes.columns("encoder.conv_in.weight"),
        "latent_channels": shapes.rows("post_quant_conv.weight"),
        "block_out_channels": channels,
        "layers_per_block": shapes.count("encoder.down_blocks.0.resnets."),
        "norm_num_groups": math.gcd(NORM_GROUPS, *channels),
        "decoder_num_layers": shapes.count("decoder.transformer_blocks."),
        "decoder_num_attention_heads": inner // _H3_HEAD_DIM,
        "decoder_attention_head_dim": _H3_HEAD_DIM,
        "decoder_num_register_tokens": registers,
        "decoder_ffn_mult": shapes.columns("decoder.transformer_blocks.0.ff.net.2.weight") // inner,
    }


def _minimax_h3_geometry(_: Shapes, config: Config) -> dict[str, int]:
    return {"latent_channels": config["latent_channels"], "factor": 16, "factor_t": 4}


AUTOENCODER_MINIMAX_H3: Final = Architecture(
    "autoencoder-kl-minimax-h3",
    "MiniMax H3",
    Role.VAE,
    (("diffusers", ("decoder.register_tokens", "post_quant_conv.weight")),),
    class_name="AutoencoderKLMiniMaxH3",
    config=_minimax_h3,
    geometry=_minimax_h3_geometry,
    evidence="decoder.* keys",
)
