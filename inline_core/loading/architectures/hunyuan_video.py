"""HunyuanVideo and HunyuanVideo 1.5."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import (
    Architecture,
    Config,
    ratio_of,
    rope_axes_eighth,
    whole_numbers,
)
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

MEAN_FLOW: Final = "mean_flow"
_LATENT_CONCAT_CHANNELS: Final = 33  # latent 16 + first frame 16 + mask 1
_ORIGINAL: Final = "txt_in.individual_token_refiner.blocks."
_DIFFUSERS: Final = "context_embedder.token_refiner.refiner_blocks."
_TEXT: Final = ("txt_in.input_embedder.weight", "context_embedder.proj_in.weight")


def _common(shapes: Shapes) -> Config:
    patches = shapes.shape("img_in.proj.weight", "x_embedder.proj.weight")
    inner, in_channels, time, side = patches[0], patches[1], patches[2], patches[3]
    head_dim = shapes.rows(
        "double_blocks.0.img_attn_q_norm.weight",
        "double_blocks.0.img_attn.norm.query_norm.weight",
        "double_blocks.0.img_attn.norm.query_norm.scale",
        "transformer_blocks.0.attn.norm_q.weight",
    )
    out = shapes.rows("final_layer.linear.weight", "proj_out.weight")
    return {
        "in_channels": in_channels,
        "out_channels": out // (time * side * side),
        "num_attention_heads": inner // head_dim,
        "attention_head_dim": head_dim,
        "num_layers": shapes.count("double_blocks.", "transformer_blocks."),
        "num_refiner_layers": shapes.count(_ORIGINAL, _DIFFUSERS),
        "mlp_ratio": ratio_of(
            shapes.rows(
                "double_blocks.0.img_mlp.fc1.weight",
                "double_blocks.0.img_mlp.0.weight",
                "transformer_blocks.0.ff.net.0.proj.weight",
            ),
            inner,
        ),
        "patch_size": side,
        "patch_size_t": time,
        "text_embed_dim": shapes.columns(*_TEXT),
        "rope_axes_dim": rope_axes_eighth(head_dim),
    }


def _hunyuan_video(shapes: Shapes) -> Config:
    config = _common(shapes) | {
        "num_single_layers": shapes.count("single_blocks.", "single_transformer_blocks."),
        "pooled_projection_dim": shapes.columns(
            "vector_in.in_layer.weight", "time_text_embed.text_embedder.linear_1.weight"
        ),
        "guidance_embeds": shapes.has(
            "guidance_in.mlp.0.weight", "time_text_embed.guidance_embedder.linear_1.weight"
        ),
    }
    # The later image to video model (token_replace) has the shapes of text to video.
    if config["in_channels"] == _LATENT_CONCAT_CHANNELS:
        config["image_condition_type"] = "latent_concat"
    return config


def _variant(_: Shapes, config: Config) -> str:
    return "i2v" if "image_condition_type" in config else "t2v"


HUNYUAN_VIDEO: Final = Architecture(
    "hunyuan-video",
    "HunyuanVideo",
    Role.DIFFUSION_MODEL,
    (
        ("original", ("txt_in.individual_token_refiner.blocks.0.norm1.weight",)),
        (
            "diffusers",
            (
                "context_embedder.token_refiner.refiner_blocks.0.norm1.weight",
                "time_text_embed.timestep_embedder.linear_1.weight",
            ),
        ),
    ),
    class_name="HunyuanVideoTransformer3DModel",
    config=_hunyuan_video,
    variant=_variant,
)


def _hunyuan_video_1_5(shapes: Shapes) -> Config:
    return _common(shapes) | {
        "text_embed_2_dim": shapes.columns(
            "byt5_in.fc1.weight", "context_embedder_2.linear_1.weight"
        ),
        "image_embed_dim": shapes.rows("vision_in.proj.0.weight", "image_embedder.norm_in.weight"),
        "use_meanflow": shapes.has(
            "time_r_in.mlp.0.weight", "time_embed.timestep_embedder_r.linear_1.weight"
        ),
    }


def _geometry_1_5(shapes: Shapes, config: Config) -> dict[str, int]:
    """The sizes, and whether it also takes the time of the next step (distilled to few steps)."""
    return whole_numbers(shapes, config) | {MEAN_FLOW: int(config["use_meanflow"])}


# Text and image to video have the same shapes, and so have models distilled to need no guidance.
HUNYUAN_VIDEO_1_5: Final = Architecture(
    "hunyuan-video-1.5",
    "HunyuanVideo 1.5",
    Role.DIFFUSION_MODEL,
    (
        ("original", ("byt5_in.fc1.weight", "vision_in.proj.0.weight", "txt_in.*")),
        ("diffusers", ("context_embedder_2.linear_1.weight", "cond_type_embed.weight")),
    ),
    class_name="HunyuanVideo15Transformer3DModel",
    config=_hunyuan_video_1_5,
    geometry=_geometry_1_5,
)
