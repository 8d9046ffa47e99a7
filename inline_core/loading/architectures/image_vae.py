"""Image VAEs: the KL autoencoders of Stable Diffusion and FLUX, FLUX.2's, and the tiny ones."""

from __future__ import annotations

import math
import re
from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config
from inline_core.loading.architectures.shapes import Shapes, count_blocks
from inline_core.loading.component import Role

NORM_GROUPS: Final = 32  # of every published VAE; in no shape


def _channels(shapes: Shapes) -> tuple[int, ...]:
    """Channels of each level of the encoder, from the first."""
    levels = shapes.count("encoder.down.", "encoder.down_blocks.")
    return tuple(
        shapes.rows(
            f"encoder.down.{level}.block.0.conv1.weight",
            f"encoder.down_blocks.{level}.resnets.0.conv1.weight",
        )
        for level in range(levels)
    )


def _decoder_channels(shapes: Shapes) -> tuple[int, ...]:
    """The same of the decoder, in the order of the encoder."""
    levels = shapes.count("decoder.up.", "decoder.up_blocks.")
    return tuple(
        shapes.rows(
            f"decoder.up.{level}.block.0.conv1.weight",
            f"decoder.up_blocks.{levels - 1 - level}.resnets.0.conv1.weight",
        )
        for level in range(levels)
    )


def _config(shapes: Shapes) -> Config:
    """Scaling and shift of the latents are in no shape: they come from the diffusion model."""
    channels = _channels(shapes) or _decoder_channels(shapes)
    resnets = shapes.count("decoder.up.0.block.", "decoder.up_blocks.0.resnets.")
    return {
        "in_channels": (
            shapes.columns("encoder.conv_in.weight") if "encoder.conv_in.weight" in shapes else 3
        ),
        "out_channels": shapes.rows("decoder.conv_out.weight"),
        "down_block_types": ("DownEncoderBlock2D",) * len(channels),
        "up_block_types": ("UpDecoderBlock2D",) * len(channels),
        "block_out_channels": channels,
        "layers_per_block": resnets - 1,  # the decoder has one more
        "latent_channels": shapes.columns("decoder.conv_in.weight"),
        "norm_num_groups": math.gcd(NORM_GROUPS, *channels),
        "use_quant_conv": "quant_conv.weight" in shapes,
        "use_post_quant_conv": "post_quant_conv.weight" in shapes,
        "mid_block_add_attention": shapes.has(
            "decoder.mid.attn_1.q.weight",
            "decoder.mid_block.attentions.0.to_q.weight",
            "decoder.mid_block.attentions.0.query.weight",
        ),
    }


def _geometry(shapes: Shapes, _: Config) -> dict[str, int]:
    levels = shapes.count("decoder.up.", "decoder.up_blocks.")
    return {
        "latent_channels": shapes.columns("decoder.conv_in.weight"),
        "factor": 2 ** max(levels - 1, 0),
    }


def _config_flux_2(shapes: Shapes) -> Config:
    config = _config(shapes)
    decoder = _decoder_channels(shapes)
    if decoder != config["block_out_channels"]:  # the small decoder
        config["decoder_block_out_channels"] = decoder
    packed = shapes.rows("bn.running_mean") // config["latent_channels"]
    side = math.isqrt(packed)
    return config | {"patch_size": (side, side)}


_LDM: Final = ("decoder.conv_in.weight", "decoder.mid.block_1.norm1.weight")
_DIFFUSERS: Final = ("decoder.conv_in.weight", "decoder.mid_block.resnets.0.norm1.weight")
AUTOENCODER_KL_FLUX_2: Final = Architecture(
    "autoencoder-kl-flux-2",
    "FLUX.2",
    Role.VAE,
    (("ldm", (*_LDM, "bn.running_mean")), ("diffusers", (*_DIFFUSERS, "bn.running_mean"))),
    class_name="AutoencoderKLFlux2",
    config=_config_flux_2,
    geometry=_geometry,
    evidence="decoder.* and bn.* keys",
)
AUTOENCODER_KL: Final = Architecture(
    "autoencoder-kl",
    "KL",
    Role.VAE,
    (("ldm", _LDM), ("diffusers", _DIFFUSERS)),
    class_name="AutoencoderKL",
    config=_config,
    geometry=_geometry,
    evidence="decoder.* keys",
    bare_label=True,
)


def _runs(shapes: Shapes, start: str) -> tuple[list[int], list[int]]:
    """(blocks after each convolution, output channels of each convolution) of one half."""
    layer = re.compile(re.escape(start) + r"layers\.(\d+)\.(conv\.0\.)?weight$")
    found = sorted(
        (int(match.group(1)), match.group(2) is not None, info.shape[0])
        for name, info in shapes.tensors.items()
        if (match := layer.match(name))
    )
    counts: list[int] = []
    channels: list[int] = []
    for _, is_block, rows in found:
        if is_block and counts:
            counts[-1] += 1
        elif not is_block:
            counts.append(0)
            channels.append(rows)
    return counts, channels


def _config_tiny(shapes: Shapes) -> Config:
    """Blocks between the convolutions; the last convolution of each half has none after it."""
    encoder_blocks, encoder_channels = _runs(shapes, "encoder.")
    decoder_blocks, decoder_channels = _runs(shapes, "decoder.")
    return {
        "in_channels": shapes.columns("encoder.layers.0.weight"),
        "out_channels": decoder_channels[-1],
        "latent_channels": encoder_channels[-1],
        "num_encoder_blocks": tuple(encoder_blocks[:-1]),
        "encoder_block_out_channels": tuple(encoder_channels[:-1]),
        "num_decoder_blocks": tuple(decoder_blocks[:-1]),
        "decoder_block_out_channels": tuple(decoder_channels[:-1]),
    }


def _geometry_tiny(_: Shapes, config: Config) -> dict[str, int]:
    levels = len(config["num_encoder_blocks"])
    return {"latent_channels": config["latent_channels"], "factor": 2 ** (levels - 1)}


AUTOENCODER_TINY: Final = Architecture(
    "autoencoder-tiny",
    "tiny (TAESD)",
    Role.VAE,
    (("diffusers", ("encoder.layers.0.weight", "decoder.layers.0.weight")),),
    class_name="AutoencoderTiny",
    config=_config_tiny,
    geometry=_geometry_tiny,
    evidence="encoder.layers.* and decoder.layers.* keys",
)
# One half alone, as it is used for previews.
AUTOENCODER_TINY_HALF: Final = Architecture(
    "autoencoder-tiny",
    "tiny (TAESD)",
    Role.VAE,
    (("original", ("1.weight", "3.conv.0.weight")), ("original", ("0.weight", "1.conv.0.weight"))),
    geometry=lambda shapes, _: {"convolutions": count_blocks(shapes.tensors, "")},
    evidence="numbered conv keys",
)
