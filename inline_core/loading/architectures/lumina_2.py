"""Lumina-Image 2.0 (NextDiT)."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

_FFN_STEP: Final = 256  # `multiple_of` of the published model and the class


def _config(shapes: Shapes) -> Config:
    hidden, patch_channels = shapes.shape("x_embedder.weight")
    head_dim = shapes.rows("layers.0.attention.q_norm.weight", "layers.0.attn.norm_q.weight")
    return {
        "in_channels": patch_channels // 4,  # patches of 2 x 2
        "hidden_size": hidden,
        "num_layers": shapes.count("layers."),
        "num_refiner_layers": shapes.count("noise_refiner."),
        "num_attention_heads": hidden // head_dim,
        "num_kv_heads": _key_rows(shapes, hidden) // head_dim,
        "axes_dim_rope": (head_dim // 3,) * 3,  # not in any shape; 96 -> 32, 32, 32 as published
        "cap_feat_dim": shapes.columns(
            "cap_embedder.1.weight", "time_caption_embed.caption_embedder.1.weight"
        ),
    } | _feed_forward(shapes, hidden)


def _key_rows(shapes: Shapes, hidden: int) -> int:
    fused = "layers.0.attention.qkv.weight"
    if fused in shapes:
        return (shapes.rows(fused) - hidden) // 2
    return shapes.rows("layers.0.attn.to_k.weight")


def _feed_forward(shapes: Shapes, hidden: int) -> Config:
    """The class rounds 4 x hidden up to `multiple_of`; another width is given as a factor."""
    width = shapes.rows("layers.0.feed_forward.w1.weight", "layers.0.feed_forward.linear_1.weight")
    if width == -(-4 * hidden // _FFN_STEP) * _FFN_STEP:
        return {}
    # The class truncates to a whole number, hence the half.
    return {"multiple_of": 1, "ffn_dim_multiplier": (width + 0.5) / (4 * hidden)}


LUMINA_2: Final = Architecture(
    "lumina2",
    "Lumina 2",
    Role.DIFFUSION_MODEL,
    (
        ("original", ("cap_embedder.1.weight", "x_embedder.weight")),
        ("diffusers", ("time_caption_embed.caption_embedder.1.weight", "norm_out.linear_1.weight")),
    ),
    class_name="Lumina2Transformer2DModel",
    config=_config,
)
