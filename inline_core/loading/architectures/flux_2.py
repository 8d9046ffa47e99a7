"""FLUX.2: dev, klein 4B and klein 9B."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import (
    Architecture,
    Config,
    ratio_of,
    whole_numbers,
)
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

# (heads, double blocks, single blocks); source: the configs published with the weights.
_VARIANTS: Final = {(48, 8, 48): "dev", (24, 5, 20): "klein-4b", (32, 8, 24): "klein-9b"}


def _config(shapes: Shapes) -> Config:
    inner, in_channels = shapes.shape("img_in.weight", "x_embedder.weight")
    head_dim = shapes.rows(
        "double_blocks.0.img_attn.norm.query_norm.scale",
        "double_blocks.0.img_attn.norm.query_norm.weight",
        "transformer_blocks.0.attn.norm_q.weight",
    )
    feed_forward = shapes.rows(
        "double_blocks.0.img_mlp.0.weight", "transformer_blocks.0.ff.linear_in.weight"
    )
    return {
        "in_channels": in_channels,
        "out_channels": shapes.rows("final_layer.linear.weight", "proj_out.weight"),
        "num_layers": shapes.count("double_blocks.", "transformer_blocks."),
        "num_single_layers": shapes.count("single_blocks.", "single_transformer_blocks."),
        "attention_head_dim": head_dim,
        "num_attention_heads": inner // head_dim,
        "joint_attention_dim": shapes.columns("txt_in.weight", "context_embedder.weight"),
        "timestep_guidance_channels": shapes.columns(
            "time_in.in_layer.weight", "time_guidance_embed.timestep_embedder.linear_1.weight"
        ),
        "mlp_ratio": ratio_of(feed_forward // 2, inner),  # gate and value are one matrix
        "axes_dims_rope": (head_dim // 4,) * 4,  # not in any shape; as published
        "guidance_embeds": shapes.has(
            "guidance_in.in_layer.weight", "time_guidance_embed.guidance_embedder.linear_1.weight"
        ),
    }


def _geometry(shapes: Shapes, config: Config) -> dict[str, int]:
    """Sizes as the VAE and the text encoder count them.

    A token is a patch of 2 x 2 latents; three layers of the encoder are joined for each token.
    """
    sizes = whole_numbers(shapes, config)
    channels, features = config["in_channels"] // 4, config["joint_attention_dim"] // 3
    return sizes | {"in_channels": channels, "cap_feat_dim": features}


def _variant(_: Shapes, config: Config) -> str:
    key = (config["num_attention_heads"], config["num_layers"], config["num_single_layers"])
    return _VARIANTS.get(key, "")


FLUX_2: Final = Architecture(
    "flux-2",
    "FLUX.2",
    Role.DIFFUSION_MODEL,
    (
        ("original", ("single_stream_modulation.lin.weight",)),
        ("diffusers", ("single_stream_modulation.linear.weight",)),
    ),
    class_name="Flux2Transformer2DModel",
    config=_config,
    geometry=_geometry,
    variant=_variant,
)
