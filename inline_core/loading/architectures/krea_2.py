"""Krea 2 (RAW and Turbo have the same shapes)."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config, rope_axes_thirds
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role


def _config(shapes: Shapes) -> Config:
    image, text = _attention(shapes, "", "blocks.0.", "transformer_blocks.0."), _text(shapes)
    head_dim = shapes.rows(
        "blocks.0.attn.qknorm.qnorm.scale", "transformer_blocks.0.attn.norm_q.weight"
    )
    return {
        "in_channels": shapes.columns("first.weight", "img_in.weight"),
        "num_layers": shapes.count("blocks.", "transformer_blocks."),
        "attention_head_dim": head_dim,
        "timestep_embed_dim": shapes.columns("tmlp.0.weight", "time_embed.linear_1.weight"),
        "axes_dims_rope": rope_axes_thirds(head_dim),
        **image,
        **text,
    }


def _text(shapes: Shapes) -> Config:
    return {
        "text_hidden_dim": shapes.rows("txtmlp.0.scale", "txt_in.norm.weight"),
        "num_text_layers": shapes.columns(
            "txtfusion.projector.weight", "text_fusion.projector.weight"
        ),
        "num_layerwise_text_blocks": shapes.count(
            "txtfusion.layerwise_blocks.", "text_fusion.layerwise_blocks."
        ),
        "num_refiner_text_blocks": shapes.count(
            "txtfusion.refiner_blocks.", "text_fusion.refiner_blocks."
        ),
        **_attention(
            shapes, "text_", "txtfusion.refiner_blocks.0.", "text_fusion.refiner_blocks.0."
        ),
    }


def _attention(shapes: Shapes, prefix: str, original: str, diffusers: str) -> Config:
    """Heads and feed-forward width of one kind of block; `prefix` is that of the arguments."""
    head_dim = shapes.rows(f"{original}attn.qknorm.qnorm.scale", f"{diffusers}attn.norm_q.weight")
    query = shapes.rows(f"{original}attn.wq.weight", f"{diffusers}attn.to_q.weight")
    key = shapes.rows(f"{original}attn.wk.weight", f"{diffusers}attn.to_k.weight")
    return {
        f"{prefix}num_attention_heads": query // head_dim,
        f"{prefix}num_key_value_heads": key // head_dim,
        f"{prefix}intermediate_size": shapes.rows(
            f"{original}mlp.gate.weight", f"{diffusers}ff.gate.weight"
        ),
    }


KREA_2: Final = Architecture(
    "krea-2",
    "Krea 2",
    Role.DIFFUSION_MODEL,
    (
        ("original", ("txtfusion.projector.weight",)),
        ("diffusers", ("text_fusion.projector.weight",)),
    ),
    class_name="Krea2Transformer2DModel",
    config=_config,
)
