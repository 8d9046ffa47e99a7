"""How files of Bria FIBO 2 are told, and what their shapes say.

No source tells how files in another layout call its weights, so only the names of diffusers are
known (also behind `model.diffusion_model.`).
"""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config, rope_axes_thirds
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

_PATCH: Final = 4  # 2 x 2
# Three layers of the text encoder are read side by side.
_LAYERS_JOINED: Final = 3
TEXT_WIDTH: Final = "text_width"


def _config(shapes: Shapes) -> Config:
    dim, values = shapes.shape("x_embedder.weight")
    head_dim = shapes.rows("layers.0.attention.norm_q.weight")
    layers = shapes.count("layers.")
    return {
        "in_channels": values // _PATCH,
        "dim": dim,
        "n_layers": layers,
        "n_refiner_layers": shapes.count("noise_refiner."),
        "n_heads": dim // head_dim,
        "cap_feat_dim": shapes.columns("perceiver.layers.0.cross_attention.to_k.weight"),
        "injection_layer_ids": tuple(
            layer
            for layer in range(layers)
            if f"layers.{layer}.cross_attention.to_q.weight" in shapes
        ),
        "perceiver_num_layers": shapes.count("perceiver.layers."),
        "max_num_gist_tokens": shapes.rows("perceiver.latent_queries"),
        "axes_dims": rope_axes_thirds(head_dim),
    }


def _geometry(_: Shapes, config: Config) -> dict[str, int]:
    sizes = {name: value for name, value in config.items() if isinstance(value, int)}
    return sizes | {TEXT_WIDTH: config["cap_feat_dim"] // _LAYERS_JOINED}


ARCHITECTURES: Final = (
    Architecture(
        "bria-fibo-2",
        "Bria FIBO 2",
        Role.DIFFUSION_MODEL,
        (("diffusers", ("perceiver.latent_queries", "noise_refiner.0.attention.to_q.weight")),),
        class_name="BriaFibo2Transformer2DModel",
        config=_config,
        geometry=_geometry,
    ),
)
