"""LTX-Video, LTX-2 and LTX-2.5 (video with sound): diffusion models and text connectors."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config, Layouts
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

HEADS: Final = 32  # of every published LTX model; in no shape, as the norm spans all heads
_BLOCK: Final = "transformer_blocks.0."
_MOST_MODULATION: Final = 9  # rows of modulation with cross-attention (LTX-2.3), else 6


def _heads(inner: int) -> tuple[int, int]:
    """(number of heads, size of a head)."""
    return (HEADS, inner // HEADS) if inner % HEADS == 0 else (1, inner)


def _ltx_video(shapes: Shapes) -> Config:
    inner, in_channels = shapes.shape("patchify_proj.weight", "proj_in.weight")
    heads, head_dim = _heads(inner)
    return {
        "in_channels": in_channels,
        "out_channels": shapes.rows("proj_out.weight"),
        "num_attention_heads": heads,
        "attention_head_dim": head_dim,
        "cross_attention_dim": shapes.columns(f"{_BLOCK}attn2.to_k.weight"),
        "num_layers": shapes.count("transformer_blocks."),
        "caption_channels": shapes.columns("caption_projection.linear_1.weight"),
    }


def _ltx_video_variant(_: Shapes, config: Config) -> str:
    sizes = {28: "2b", 48: "13b"}  # by layers; 0.9 to 0.9.8 have the same shapes
    return sizes.get(config["num_layers"], "")


LTX_VIDEO: Final = Architecture(
    "ltx-video",
    "LTX-Video",
    Role.DIFFUSION_MODEL,
    (
        ("original", ("adaln_single.linear.weight", "patchify_proj.weight")),
        (
            "diffusers",
            (
                "proj_in.weight",
                "time_embed.emb.timestep_embedder.linear_1.weight",
                "caption_projection.linear_1.weight",
            ),
        ),
    ),
    class_name="LTXVideoTransformer3DModel",
    config=_ltx_video,
    variant=_ltx_video_variant,
)


def _one_side(shapes: Shapes, side: str) -> Config:
    """The arguments of the video side (`side` "") or of the audio side ("audio_")."""
    inner, in_channels = shapes.shape(f"{side}patchify_proj.weight", f"{side}proj_in.weight")
    gate = f"{_BLOCK}{side}attn1.to_gate_logits.weight"
    heads, head_dim = _heads(inner)
    if gate in shapes:
        heads = shapes.rows(gate)
        head_dim = inner // heads
    modulation = shapes.rows(f"{side}adaln_single.linear.weight", f"{side}time_embed.linear.weight")
    return {
        f"{side}in_channels": in_channels,
        f"{side}out_channels": shapes.rows(f"{side}proj_out.weight"),
        f"{side}num_attention_heads": heads,
        f"{side}attention_head_dim": head_dim,
        f"{side}cross_attention_dim": shapes.columns(f"{_BLOCK}{side}attn2.to_k.weight"),
        f"{side}gated_attn": gate in shapes,
        f"{side}cross_attn_mod": modulation == _MOST_MODULATION * inner,
        f"{side}ff_bias": f"{_BLOCK}{side}ff.net.0.proj.bias" in shapes,
    }


def _ltx_2(shapes: Shapes) -> Config:
    """Rope kind, positions and time scales are in no shape: see the class and the config.json."""
    caption = "caption_projection.linear_1.weight"
    config: Config = {
        **_one_side(shapes, ""),
        **_one_side(shapes, "audio_"),
        "num_layers": shapes.count("transformer_blocks."),
        "use_prompt_embeddings": caption in shapes,
        "use_prompt_adaln_single": shapes.has(
            "prompt_adaln_single.linear.weight", "prompt_adaln.linear.weight"
        ),
        "use_keyframes_abs_pos_embedding": "keyframes_abs_pos_embedding" in shapes,
    }
    if caption in shapes:
        config["caption_channels"] = shapes.columns(caption)
    return config


def _ltx_2_variant(_: Shapes, config: Config) -> str:
    return "2.3" if config["cross_attn_mod"] else "2.0"


def _is_ltx_2_5(shapes: Shapes) -> bool:
    """It marks keyframes, and its feed-forward layers have no biases."""
    layer = f"{_BLOCK}ff.net.0.proj."
    bare = f"{layer}weight" in shapes and f"{layer}bias" not in shapes
    return "keyframes_abs_pos_embedding" in shapes or bare


_LTX_2_LAYOUTS: Final[Layouts] = (
    ("original", ("av_ca_a2v_gate_adaln_single.linear.weight",)),
    ("diffusers", ("av_cross_attn_video_a2v_gate.linear.weight",)),
)
LTX_2_5: Final = Architecture(
    "ltx-2.5",
    "LTX-2.5",
    Role.DIFFUSION_MODEL,
    _LTX_2_LAYOUTS,
    class_name="LTX2VideoTransformer3DModel",
    config=_ltx_2,
    condition=_is_ltx_2_5,
)
LTX_2: Final = Architecture(
    "ltx-2",
    "LTX-2",
    Role.DIFFUSION_MODEL,
    _LTX_2_LAYOUTS,
    class_name="LTX2VideoTransformer3DModel",
    config=_ltx_2,
    variant=_ltx_2_variant,
)


def _connector_geometry(shapes: Shapes, _: Config) -> dict[str, int]:
    video, audio = (
        shapes.shape(f"{side}_connector.{_REGISTERS}", f"{side}_embeddings_connector.{_REGISTERS}")
        for side in ("video", "audio")
    )
    return {"hidden_size": video[1], "audio_hidden_size": audio[1], "registers": video[0]}


# They read what the text encoder gives, and stand where a second text encoder does.  Their class
# takes the number of layers of the first one and more that is not in one shape.
_REGISTERS: Final = "learnable_registers"
LTX_2_CONNECTORS: Final = Architecture(
    "ltx-2-connectors",
    "LTX-2 text connectors",
    Role.TEXT_ENCODER,
    (
        ("diffusers", (f"video_connector.{_REGISTERS}", "audio_connector.*")),
        (
            "original",
            (
                f"video_embeddings_connector.{_REGISTERS}",
                "audio_embeddings_connector.*",
                "text_embedding_projection.*",
            ),
        ),
    ),
    class_name="LTX2TextConnectors",
    geometry=_connector_geometry,
    evidence="video and audio connector keys",
)
