"""How files of LongCat-Image are told, and what their shapes say.

Its blocks are those of FLUX.1, but nothing stands for the prompt as a whole.  That repacked files
may call them as FLUX.1's original does (`double_blocks`) is from memory of ComfyUI; diffusers and
its makers use the names of diffusers.
"""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config
from inline_core.loading.architectures.flux_1 import blocks
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role


def _config(shapes: Shapes) -> Config:
    return blocks(shapes, has_output=False)


def _no_kin(shapes: Shapes) -> bool:
    """FLUX.1 has a vector, Ovis-Image a norm for its text."""
    others = ("vector_in.in_layer.weight", "txt_norm.scale", "txt_norm.weight")
    return not shapes.has(*others)


ARCHITECTURES: Final = (
    Architecture(
        "longcat-image",
        "LongCat-Image",
        Role.DIFFUSION_MODEL,
        (
            (
                "diffusers",
                (
                    "time_embed.timestep_embedder.linear_1.weight",
                    "single_transformer_blocks.0.norm.linear.weight",
                ),
            ),
            (
                "original",
                (
                    "double_blocks.0.img_mod.lin.weight",
                    "single_blocks.0.linear1.weight",
                    "time_in.in_layer.weight",
                    "txt_in.weight",
                ),
            ),
        ),
        class_name="LongCatImageTransformer2DModel",
        config=_config,
        condition=_no_kin,
    ),
)
