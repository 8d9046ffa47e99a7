"""MiniMax H3 (video with sound)."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

_PATCH: Final = 4  # patches of 1 x 2 x 2, the class default; only their product is in a shape
_REFINERS: Final = ("token_refiner.blocks.", "token_refiner.refiner_blocks.")
_TABLE: Final = "adaln_t_table"


def _config(shapes: Shapes) -> Config:
    hidden, patch_channels = shapes.shape("video_patch_proj.weight", "proj_in.weight")
    head_dim = shapes.rows("blocks.0.attn.q_norm.weight", "transformer_blocks.0.attn.norm_q.weight")
    attention = shapes.columns(
        "blocks.0.attn.out_proj.weight", "transformer_blocks.0.attn.to_out.0.weight"
    )
    time_in = ("time_embedder.proj_in.weight", "time_embedder.linear_1.weight")
    config: Config = {
        "num_attention_heads": attention // head_dim,
        "attention_head_dim": head_dim,
        "hidden_size": hidden,
        "num_layers": shapes.count("blocks.", "transformer_blocks."),
        "num_refiner_layers": shapes.count(*_REFINERS),
        "ffn_dim": shapes.columns(
            "blocks.0.mlp.fc2.weight", "transformer_blocks.0.ff.net.2.weight"
        ),
        "in_channels": patch_channels // _PATCH,
        "audio_in_channels": shapes.columns("audio_patch_proj.weight", "audio_proj_in.weight"),
        "text_dim": shapes.columns("condition_proj.weight", "context_embedder.weight"),
    }
    if _TABLE not in shapes:
        config["time_embed_hidden_dim"], config["freq_dim"] = shapes.shape(*time_in)
        config["time_embed_dim"] = shapes.rows(
            "time_embedder.proj_out.weight", "time_embedder.linear_2.weight"
        )
    return config


def _problems(shapes: Shapes) -> tuple[str, ...]:
    if _TABLE not in shapes:
        return ()
    problem = (
        f"it is a pruned MiniMax H3 ({_TABLE} in place of time_embedder), which no class loads: "
        "use the unpruned file"
    )
    return (problem,)


MINIMAX_H3: Final = Architecture(
    "minimax-h3",
    "MiniMax H3",
    Role.DIFFUSION_MODEL,
    (
        ("original", ("token_refiner.blocks.0.attn.qkv_proj.weight",)),
        ("diffusers", ("token_refiner.refiner_blocks.0.attn.to_q.weight", "audio_proj_in.weight")),
    ),
    class_name="MiniMaxH3Transformer3DModel",
    config=_config,
    problems=_problems,
)
