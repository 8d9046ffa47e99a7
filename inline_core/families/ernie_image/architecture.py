"""How files of ERNIE-Image are told, and what their shapes say.

Original files have the names of diffusers, behind `model.diffusion_model.` (source: diffusers'
`convert_ernie_image_transformer_checkpoint_to_diffusers`).
"""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config, rope_axes_thirds
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

_TEXT: Final = "text_proj.weight"


def _config(shapes: Shapes) -> Config:
    hidden, in_channels, patch, _ = shapes.shape("x_embedder.proj.weight")
    head_dim = shapes.rows("layers.0.self_attention.norm_q.weight")
    return {
        "hidden_size": hidden,
        "num_attention_heads": hidden // head_dim,
        "num_layers": shapes.count("layers."),
        "ffn_hidden_size": shapes.rows("layers.0.mlp.gate_proj.weight"),
        "in_channels": in_channels,
        "out_channels": shapes.rows("final_linear.weight") // patch**2,
        "patch_size": patch,
        # Words as wide as the model itself go in as they are.
        "text_in_dim": shapes.columns(_TEXT) if _TEXT in shapes else hidden,
        "rope_axes_dim": rope_axes_thirds(head_dim),
    }


ARCHITECTURES: Final = (
    Architecture(
        "ernie-image",
        "ERNIE-Image",
        Role.DIFFUSION_MODEL,
        (("diffusers", ("layers.0.adaLN_sa_ln.weight", "layers.0.mlp.linear_fc2.weight")),),
        class_name="ErnieImageTransformer2DModel",
        config=_config,
    ),
)
