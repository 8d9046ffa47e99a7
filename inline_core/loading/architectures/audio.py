"""Audio: the VAEs of LTX-2, MiniMax H3 and ACE-Step (Oobleck), and LTX-2's vocoder."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role


def _ltx_2(shapes: Shapes) -> Config:
    """Sampling rate and causality are in no shape: the class has the published ones."""
    base = shapes.rows("encoder.conv_in.conv.weight")
    levels = shapes.count("encoder.down.")
    return {
        "base_channels": base,
        "in_channels": shapes.columns("encoder.conv_in.conv.weight"),
        "output_channels": shapes.rows("decoder.conv_out.conv.weight"),
        "latent_channels": shapes.columns("decoder.conv_in.conv.weight"),
        "ch_mult": tuple(
            shapes.rows(f"encoder.down.{level}.block.0.conv1.conv.weight") // base
            for level in range(levels)
        ),
        "num_res_blocks": shapes.count("encoder.down.0.block."),
    }


AUTOENCODER_LTX_2_AUDIO: Final = Architecture(
    "autoencoder-kl-ltx-2-audio",
    "LTX-2",
    Role.AUDIO_VAE,
    (
        (
            "original",
            ("decoder.up.0.block.0.conv1.conv.weight", "per_channel_statistics.mean-of-means"),
        ),
        ("diffusers", ("decoder.up.0.block.0.conv1.conv.weight", "latents_mean")),
    ),
    class_name="AutoencoderKLLTX2Audio",
    config=_ltx_2,
    evidence="decoder.* keys",
)


def _oobleck(shapes: Shapes) -> Config:
    hidden, audio_channels, _ = shapes.shape("encoder.conv1.weight_v")
    kernels = [
        shapes.shape(f"encoder.block.{index}.conv1.weight_v")
        for index in range(shapes.count("encoder.block."))
    ]
    latent = shapes.columns("decoder.conv1.weight_v")
    return {
        "encoder_hidden_size": hidden,
        "downsampling_ratios": [kernel[2] // 2 for kernel in kernels],
        "channel_multiples": [kernel[0] // hidden for kernel in kernels],
        "decoder_channels": shapes.columns("decoder.conv2.weight_v"),
        "decoder_input_channels": latent,
        "audio_channels": audio_channels,
    }


def _oobleck_sizes(_: Shapes, config: Config) -> dict[str, int]:
    sizes = {name: value for name, value in config.items() if type(value) is int}
    return {**sizes, "latent_channels": config["decoder_input_channels"]}


# The one VAE of its models, so it has the role that the VAEs of pictures have.
OOBLECK: Final = Architecture(
    "autoencoder-oobleck",
    "Oobleck audio",
    Role.VAE,
    (("diffusers", ("encoder.conv1.weight_v", "decoder.conv1.weight_v")),),
    class_name="AutoencoderOobleck",
    config=_oobleck,
    geometry=_oobleck_sizes,
    evidence="decoder.* keys",
)


def _oobleck_original(shapes: Shapes) -> Config:
    """One list of layers: a convolution, the stages, a snake, a convolution."""
    hidden, audio_channels, _ = shapes.shape("encoder.layers.0.weight_v")
    stages = shapes.count("encoder.layers.") - 3
    kernels = [
        shapes.shape(f"encoder.layers.{index + 1}.layers.4.weight_v") for index in range(stages)
    ]
    last = shapes.count("decoder.layers.") - 1
    return {
        "encoder_hidden_size": hidden,
        "downsampling_ratios": [kernel[2] // 2 for kernel in kernels],
        "channel_multiples": [kernel[0] // hidden for kernel in kernels],
        "decoder_channels": shapes.columns(f"decoder.layers.{last}.weight_v"),
        "decoder_input_channels": shapes.columns("decoder.layers.0.weight_v"),
        "audio_channels": audio_channels,
    }


OOBLECK_ORIGINAL: Final = Architecture(
    "autoencoder-oobleck",
    "Oobleck audio",
    Role.VAE,
    (("original", ("encoder.layers.0.weight_v", "decoder.layers.0.weight_v")),),
    class_name="AutoencoderOobleck",
    config=_oobleck_original,
    geometry=_oobleck_sizes,
    evidence="decoder.* keys",
)


def _minimax_h3(shapes: Shapes) -> Config:
    """Strides, kernels and dilations come from the class: not all of them are in shapes."""
    return {
        "encoder_dim": shapes.rows("encoder.block.0.weight_v"),
        "latent_dim": shapes.rows("dec_in_proj.weight"),
        "latent_channels": shapes.columns("dec_in_proj.weight"),
        "decoder_dim": shapes.rows("decoder.conv_pre.weight_v"),
    }


AUTOENCODER_MINIMAX_H3_AUDIO: Final = Architecture(
    "autoencoder-kl-minimax-h3-audio",
    "MiniMax H3",
    Role.AUDIO_VAE,
    (("diffusers", ("dec_in_proj.weight", "pre_block.attn.qkv.weight")),),
    class_name="AutoencoderKLMiniMaxH3Audio",
    config=_minimax_h3,
    evidence="dec_in_proj and pre_block keys",
)


def _vocoder(shapes: Shapes) -> Config:
    hidden, in_channels, _ = shapes.shape("conv_in.weight")
    return {
        "in_channels": in_channels,
        "hidden_channels": hidden,
        "out_channels": shapes.rows("conv_out.weight"),
        "upsample_kernel_sizes": [
            shapes.size(2, f"upsamplers.{index}.weight")
            for index in range(shapes.count("upsamplers."))
        ],
    }


LTX_2_VOCODER: Final = Architecture(
    "ltx-2",
    "LTX-2",
    Role.VOCODER,
    (("diffusers", ("conv_in.weight", "upsamplers.0.weight", "resnets.0.convs1.0.weight")),),
    class_name="LTX2Vocoder",
    config=_vocoder,
)
# With bandwidth extension (LTX-2.3); its class has the published sizes.
LTX_2_VOCODER_WITH_EXTENSION: Final = Architecture(
    "ltx-2",
    "LTX-2.3",
    Role.VOCODER,
    (("diffusers", ("vocoder.conv_in.weight", "bwe_generator.conv_in.weight")),),
    class_name="LTX2VocoderWithBWE",
)
LTX_2_VOCODER_ORIGINAL: Final = Architecture(
    "ltx-2",
    "LTX-2",
    Role.VOCODER,
    (("original", ("conv_pre.weight", "resblocks.0.convs1.0.weight")),),
)
