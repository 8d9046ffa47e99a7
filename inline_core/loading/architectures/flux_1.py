"""FLUX.1 and Chroma, which share their blocks."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config, rope_axes_eighth
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

_HEAD: Final = (
    "double_blocks.0.img_attn.norm.query_norm.scale",
    "transformer_blocks.0.attn.norm_q.weight",
)
# Channels of packed 2 x 2 latents: 64 alone; Fill adds the masked picture (64) and the mask (256),
# the Depth and Canny models the control picture (64).
_FILL_CHANNELS: Final = 384
_CONTROL_CHANNELS: Final = 128


def blocks(shapes: Shapes, *, has_output: bool = True) -> Config:
    """The constructor arguments that FLUX.1, its ControlNets and Chroma have in common."""
    inner, in_channels = shapes.shape("img_in.weight", "x_embedder.weight")
    head_dim = shapes.rows(*_HEAD)
    config: Config = {
        "in_channels": in_channels,
        "num_layers": shapes.count("double_blocks.", "transformer_blocks."),
        "num_single_layers": shapes.count("single_blocks.", "single_transformer_blocks."),
        "attention_head_dim": head_dim,
        "num_attention_heads": inner // head_dim,
        "joint_attention_dim": shapes.columns("txt_in.weight", "context_embedder.weight"),
        "axes_dims_rope": rope_axes_eighth(head_dim),
    }
    if has_output:
        config["out_channels"] = shapes.rows("final_layer.linear.weight", "proj_out.weight")
    return config


def _flux(shapes: Shapes) -> Config:
    return blocks(shapes) | {
        "pooled_projection_dim": shapes.columns(
            "vector_in.in_layer.weight", "time_text_embed.text_embedder.linear_1.weight"
        ),
        "guidance_embeds": shapes.has(
            "guidance_in.in_layer.weight", "time_text_embed.guidance_embedder.linear_1.weight"
        ),
    }


def _flux_variant(_: Shapes, config: Config) -> str:
    # Dev, Kontext and Krea have the same shapes.
    if config["in_channels"] == _FILL_CHANNELS:
        return "fill"
    if config["in_channels"] == _CONTROL_CHANNELS:
        return "control"
    return "dev" if config["guidance_embeds"] else "schnell"


FLUX_1: Final = Architecture(
    "flux-1",
    "FLUX.1",
    Role.DIFFUSION_MODEL,
    (
        ("original", ("double_blocks.0.img_attn.norm.key_norm.scale",)),
        (
            "diffusers",
            (
                "single_transformer_blocks.0.norm.linear.weight",
                "context_embedder.weight",
                "time_text_embed.text_embedder.linear_1.weight",
            ),
        ),
    ),
    class_name="FluxTransformer2DModel",
    config=_flux,
    variant=_flux_variant,
)


def _chroma(shapes: Shapes) -> Config:
    hidden, channels = shapes.shape("distilled_guidance_layer.in_proj.weight")
    return blocks(shapes) | {
        "approximator_num_channels": channels,
        "approximator_hidden_dim": hidden,
        "approximator_layers": shapes.count("distilled_guidance_layer.layers."),
    }


CHROMA_RADIANCE: Final = Architecture(
    "chroma-radiance",
    "Chroma Radiance",
    Role.DIFFUSION_MODEL,
    (("original", ("distilled_guidance_layer.in_proj.weight", "img_in_patch.weight")),),
)
CHROMA: Final = Architecture(
    "chroma",
    "Chroma",
    Role.DIFFUSION_MODEL,
    (
        ("diffusers", ("distilled_guidance_layer.in_proj.weight", "x_embedder.weight")),
        ("original", ("distilled_guidance_layer.in_proj.weight",)),
    ),
    class_name="ChromaTransformer2DModel",
    config=_chroma,
)
