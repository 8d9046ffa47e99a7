"""How files of Ovis-Image are told, and what their shapes say."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config, rope_axes_eighth
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role


def _config(shapes: Shapes) -> Config:
    inner, in_channels = shapes.shape("x_embedder.weight")
    head_dim = shapes.rows("transformer_blocks.0.attn.norm_q.weight")
    return {
        "in_channels": in_channels,
        "out_channels": shapes.rows("proj_out.weight"),
        "num_layers": shapes.count("transformer_blocks."),
        "num_single_layers": shapes.count("single_transformer_blocks."),
        "attention_head_dim": head_dim,
        "num_attention_heads": inner // head_dim,
        "joint_attention_dim": shapes.columns("context_embedder.weight"),
        "axes_dims_rope": rope_axes_eighth(head_dim),
    }


ARCHITECTURES: Final = (
    Architecture(
        "ovis-image",
        "Ovis-Image",
        Role.DIFFUSION_MODEL,
        (("diffusers", ("context_embedder_norm.weight", "timestep_embedder.linear_1.weight")),),
        class_name="OvisImageTransformer2DModel",
        config=_config,
    ),
)
