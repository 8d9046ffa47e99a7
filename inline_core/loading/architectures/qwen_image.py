"""Qwen-Image (also Edit and Layered) and Qwen-Image 2.1.

Their published files use the names of diffusers; only 2.1 as ComfyUI writes it fuses two matrices.
"""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import (
    Architecture,
    Config,
    ratio_of,
    rope_axes_eighth,
)
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

_HEAD: Final = "transformer_blocks.0.attn.norm_q.weight"
_LAYERED: Final = "time_text_embed.addition_t_embedding.weight"
# ComfyUI marks the edit models of late 2025 with this empty tensor.
_ZERO_TIME: Final = "__index_timestep_zero__"


def _config(shapes: Shapes) -> Config:
    inner, in_channels = shapes.shape("img_in.weight")
    head_dim = shapes.rows(_HEAD)
    config: Config = {
        "in_channels": in_channels,
        "out_channels": shapes.rows("proj_out.weight") // 4,  # patches of 2 x 2
        "num_layers": shapes.count("transformer_blocks."),
        "attention_head_dim": head_dim,
        "num_attention_heads": inner // head_dim,
        "joint_attention_dim": shapes.columns("txt_in.weight"),
        "axes_dims_rope": rope_axes_eighth(head_dim),
    }
    if _LAYERED in shapes:  # the Layered model has both, as published
        config |= {"use_additional_t_cond": True, "use_layer3d_rope": True}
    if _ZERO_TIME in shapes:
        config["zero_cond_t"] = True
    return config


def _variant(shapes: Shapes, _: Config) -> str:
    # Qwen-Image and Qwen-Image-Edit have the same shapes.
    return "layered" if _LAYERED in shapes else "edit" if _ZERO_TIME in shapes else ""


QWEN_IMAGE: Final = Architecture(
    "qwen-image",
    "Qwen-Image",
    Role.DIFFUSION_MODEL,
    (("diffusers", ("txt_norm.weight", "img_in.weight")),),
    class_name="QwenImageTransformer2DModel",
    config=_config,
    variant=_variant,
)


def _config_2_1(shapes: Shapes) -> Config:
    inner, in_channels = shapes.shape("img_in.weight")
    head_dim = shapes.rows(_HEAD)
    fused = "transformer_blocks.0.img_mlp.gate_up.weight"
    hidden = (
        shapes.rows(fused) // 2
        if fused in shapes
        else shapes.rows("transformer_blocks.0.img_mlp.proj.weight")
    )
    return {
        "in_channels": in_channels,
        "out_channels": shapes.rows("proj_out.weight"),
        "num_layers": shapes.count("transformer_blocks."),
        "attention_head_dim": head_dim,
        "num_attention_heads": inner // head_dim,
        "context_in_dim": shapes.rows("txt_in.text_norm.weight"),
        "mlp_ratio": ratio_of(hidden, inner),
        "axes_dims_rope": rope_axes_eighth(head_dim),
    }


QWEN_IMAGE_2_1: Final = Architecture(
    "qwen-image-2.1",
    "Qwen-Image 2.1",
    Role.DIFFUSION_MODEL,
    (
        (
            "original",
            ("txt_in.text_norm.weight", "transformer_blocks.0.img_mlp.gate_up.weight"),
        ),
        ("diffusers", ("txt_in.text_norm.weight",)),
    ),
    class_name="QwenImage21Transformer2DModel",
    config=_config_2_1,
)


def _controlnet(shapes: Shapes) -> Config:
    inner, in_channels = shapes.shape("img_in.weight")
    head_dim = shapes.rows(_HEAD)
    return {
        "in_channels": in_channels,
        "num_layers": shapes.count("transformer_blocks."),
        "attention_head_dim": head_dim,
        "num_attention_heads": inner // head_dim,
        "joint_attention_dim": shapes.columns("txt_in.weight"),
        "axes_dims_rope": rope_axes_eighth(head_dim),
        "extra_condition_channels": (shapes.columns("controlnet_x_embedder.weight") - in_channels),
    }


QWEN_IMAGE_CONTROLNET: Final = Architecture(
    "qwen-image",
    "Qwen-Image",
    Role.CONTROLNET,
    (("diffusers", ("controlnet_x_embedder.weight", "txt_norm.weight")),),
    class_name="QwenImageControlNetModel",
    config=_controlnet,
)


# DiffSynth's model patches: one small block per transformer block, without the transformer.
QWEN_IMAGE_PATCH: Final = Architecture(
    "qwen-image",
    "Qwen-Image ControlNet",
    Role.MODEL_PATCH,
    (("original", ("controlnet_blocks.0.y_rms.weight",)),),
)
