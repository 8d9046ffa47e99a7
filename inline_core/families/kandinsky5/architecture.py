"""How files of Kandinsky 5 are told, and what their shapes say.

Its makers, diffusers and ComfyUI are taken to call its weights alike: no converter is known.
"""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config, rope_axes_thirds
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

_PATCH: Final = 4  # 1 x 2 x 2


def _config(shapes: Shapes) -> Config:
    model_dim, values = shapes.shape("visual_embeddings.in_layer.weight")
    channels = shapes.rows("out_layer.out_layer.weight") // _PATCH
    block = "visual_transformer_blocks.0."
    return {
        "in_visual_dim": channels,
        "out_visual_dim": channels,
        "in_text_dim": shapes.columns("text_embeddings.in_layer.weight"),
        "in_text_dim2": shapes.columns("pooled_text_embeddings.in_layer.weight"),
        "time_dim": shapes.rows("time_embeddings.in_layer.weight"),
        "model_dim": model_dim,
        "ff_dim": shapes.rows(f"{block}feed_forward.in_layer.weight"),
        "num_text_blocks": shapes.count("text_transformer_blocks."),
        "num_visual_blocks": shapes.count("visual_transformer_blocks."),
        "axes_dims": rope_axes_thirds(shapes.rows(f"{block}self_attention.query_norm.weight")),
        # A frame and a mask beside the latents.
        "visual_cond": values // _PATCH == 2 * channels + 1,
    }


ARCHITECTURES: Final = (
    Architecture(
        "kandinsky-5",
        "Kandinsky 5",
        Role.DIFFUSION_MODEL,
        (
            (
                "diffusers",
                ("visual_embeddings.in_layer.weight", "pooled_text_embeddings.in_layer.weight"),
            ),
        ),
        class_name="Kandinsky5Transformer3DModel",
        config=_config,
    ),
)
