"""ControlNets and upscalers that have no family's module of their own."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config
from inline_core.loading.architectures.flux_1 import blocks
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role


def _flux(shapes: Shapes) -> Config:
    config = blocks_without_output(shapes)
    if "controlnet_mode_embedder.weight" in shapes:
        config["num_mode"] = shapes.rows("controlnet_mode_embedder.weight")
    return config


def blocks_without_output(shapes: Shapes) -> Config:
    """The arguments of a FLUX.1 ControlNet, which has no last layer."""
    config = blocks(shapes, has_output=False)
    return config | {
        "pooled_projection_dim": shapes.columns("time_text_embed.text_embedder.linear_1.weight"),
        "guidance_embeds": "time_text_embed.guidance_embedder.linear_1.weight" in shapes,
    }


FLUX_1_CONTROLNET: Final = Architecture(
    "flux-1",
    "FLUX.1",
    Role.CONTROLNET,
    (("diffusers", ("controlnet_x_embedder.weight", "context_embedder.weight")),),
    class_name="FluxControlNetModel",
    config=_flux,
)
SD3_CONTROLNET: Final = Architecture(
    "sd3",
    "Stable Diffusion 3",
    Role.CONTROLNET,
    (("diffusers", ("pos_embed_input.proj.weight", "controlnet_blocks.0.weight")),),
)
# Told by name only: another layout or a family without a class.
OTHER_CONTROLNET: Final = Architecture(
    "controlnet",
    "ControlNet",
    Role.CONTROLNET,
    (
        ("original", ("control_layers.*",)),
        ("original", ("controlnet_blocks.*",)),
        ("original", ("controlnet_x_embedder.*",)),
        ("original", ("control_model.*",)),
        ("original", ("input_hint_block.*",)),
        ("original", ("lora_controlnet",)),
    ),
    bare_label=True,
)
UPSCALERS: Final = (
    Architecture(
        "upscaler",
        "ESRGAN",
        Role.UPSCALER,
        (
            ("original", ("conv_first.weight", "conv_last.weight")),
            ("original", ("model.0.weight", "model.1.sub.0.RDB1.conv1.0.weight")),
        ),
        bare_label=True,
    ),
    Architecture(
        "latent-upscaler",
        "LTX",
        Role.LATENT_UPSCALER,
        (("original", ("initial_conv.weight", "post_upsample_res_blocks.0.conv1.weight")),),
    ),
)
