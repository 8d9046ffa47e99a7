"""How files of Ideogram 4 are told, and what their shapes say.

Its unconditional model has the same class and shapes.
"""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config, whole_numbers
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

# Of the published config, in no shape: frequencies of time, height and width in half a head of 128.
_SECTIONS: Final = (24, 20, 20)
_HALF_HEAD: Final = 128
# How many layers of the text encoder are read (see `text`), and what their joint width is called.
LAYERS_READ: Final = 13
TEXT_WIDTH: Final = "text_width"


def _config(shapes: Shapes) -> Config:
    inner, in_channels = shapes.shape("input_proj.weight")
    head_dim = shapes.rows("layers.0.attention.norm_q.weight")
    side = max(head_dim // 2 * _SECTIONS[1] // _HALF_HEAD, 1)
    return {
        "in_channels": in_channels,
        "num_layers": shapes.count("layers."),
        "attention_head_dim": head_dim,
        "num_attention_heads": inner // head_dim,
        "intermediate_size": shapes.rows("layers.0.feed_forward.w1.weight"),
        "adaln_dim": shapes.rows("adaln_proj.weight"),
        "llm_features_dim": shapes.columns("llm_cond_proj.weight"),
        "mrope_section": (max(head_dim // 2 * _SECTIONS[0] // _HALF_HEAD, 1), side, side),
    }


def _geometry(shapes: Shapes, config: Config) -> dict[str, int]:
    sizes = whole_numbers(shapes, config)
    return sizes | {TEXT_WIDTH: config["llm_features_dim"] // LAYERS_READ}


ARCHITECTURES: Final = (
    Architecture(
        "ideogram-4",
        "Ideogram 4",
        Role.DIFFUSION_MODEL,
        (
            ("original", ("llm_cond_proj.weight", "layers.0.attention.qkv.weight")),
            ("diffusers", ("llm_cond_proj.weight", "embed_image_indicator.weight")),
        ),
        class_name="Ideogram4Transformer2DModel",
        config=_config,
        geometry=_geometry,
    ),
)
