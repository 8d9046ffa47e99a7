"""Stable Diffusion 3 and 3.5."""

from __future__ import annotations

import math
import re
from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

HEAD_DIM: Final = 64  # of every published model; in no shape without query norms
_DUAL: Final = re.compile(r"^(?:joint|transformer)_blocks\.(\d+)\.(?:x_block\.)?attn2\.")
_NORMS: Final = (
    "joint_blocks.0.x_block.attn.ln_q.weight",
    "transformer_blocks.0.attn.norm_q.weight",
)


def _config(shapes: Shapes) -> Config:
    patches = shapes.shape("x_embedder.proj.weight", "pos_embed.proj.weight")
    inner, in_channels, patch = patches[0], patches[1], patches[-1]
    positions = shapes.columns("pos_embed", "pos_embed.pos_embed")
    has_norms = shapes.has(*_NORMS)
    head_dim = shapes.rows(*_NORMS) if has_norms else HEAD_DIM
    dual = {int(match.group(1)) for name in shapes.tensors if (match := _DUAL.match(name))}
    caption, joint = shapes.shape("context_embedder.weight")
    return {
        "patch_size": patch,
        "in_channels": in_channels,
        "num_layers": shapes.count("joint_blocks.", "transformer_blocks."),
        "attention_head_dim": head_dim,
        "num_attention_heads": inner // head_dim,
        "joint_attention_dim": joint,
        "caption_projection_dim": caption,
        "pooled_projection_dim": shapes.columns(
            "y_embedder.mlp.0.weight", "time_text_embed.text_embedder.linear_1.weight"
        ),
        "out_channels": shapes.rows("final_layer.linear.weight", "proj_out.weight") // patch**2,
        "pos_embed_max_size": math.isqrt(positions),
        "dual_attention_layers": tuple(sorted(dual)),
        "qk_norm": "rms_norm" if has_norms else None,
    }


def _variant(_: Shapes, config: Config) -> str:
    layers, norms = config["num_layers"], config["qk_norm"] is not None
    names = {(24, False): "3-medium", (24, True): "3.5-medium", (38, True): "3.5-large"}
    return names.get((layers, norms), "")


SD3: Final = Architecture(
    "sd3",
    "Stable Diffusion 3",
    Role.DIFFUSION_MODEL,
    (
        ("original", ("joint_blocks.0.x_block.attn.qkv.weight", "context_embedder.weight")),
        ("diffusers", ("pos_embed.pos_embed", "context_embedder.weight", "norm_out.linear.weight")),
    ),
    class_name="SD3Transformer2DModel",
    config=_config,
    variant=_variant,
)
