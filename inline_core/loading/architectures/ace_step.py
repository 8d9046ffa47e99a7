"""ACE-Step (music): the diffusion model of 1.5, and the older one by name only."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role


def _both(name: str, original: str = "") -> tuple[str, str]:
    """The name in the original layout (below `decoder.`) and in that of diffusers."""
    return f"decoder.{original or name}", name


def _config(shapes: Shapes) -> Config:
    # Rope, window and the kind of each layer are in no shape: the class has the published ones.
    head_dim = shapes.rows(
        "decoder.layers.0.self_attn.q_norm.weight", "layers.0.self_attn.norm_q.weight"
    )
    query = shapes.rows(
        "decoder.layers.0.self_attn.q_proj.weight", "layers.0.self_attn.to_q.weight"
    )
    key = shapes.rows("decoder.layers.0.self_attn.k_proj.weight", "layers.0.self_attn.to_k.weight")
    patches = shapes.shape("decoder.proj_in.1.weight", "proj_in_conv.weight")
    out_channels = shapes.columns("decoder.proj_out.1.weight", "proj_out_conv.weight")
    return {
        "hidden_size": patches[0],
        "intermediate_size": shapes.rows(*_both("layers.0.mlp.gate_proj.weight")),
        "num_hidden_layers": shapes.count("decoder.layers.", "layers."),
        "num_attention_heads": query // head_dim,
        "num_key_value_heads": key // head_dim,
        "head_dim": head_dim,
        "in_channels": patches[1],
        "patch_size": patches[2],
        "audio_acoustic_hidden_dim": out_channels,
        "encoder_hidden_size": shapes.columns(*_both("condition_embedder.weight")),
        "attention_bias": shapes.has(
            "decoder.layers.0.self_attn.q_proj.bias", "layers.0.self_attn.to_q.bias"
        ),
    }


ACE_STEP: Final = Architecture(
    "ace-step",
    "ACE-Step",
    Role.DIFFUSION_MODEL,
    (
        (
            "original",
            ("decoder.layers.0.self_attn.q_proj.weight", "decoder.condition_embedder.weight"),
        ),
        ("diffusers", ("proj_in_conv.weight", "condition_embedder.weight")),
    ),
    class_name="AceStepTransformer1DModel",
    config=_config,
    variant=lambda _shapes, _config: "1.5",
)
ACE_STEP_1: Final = Architecture(
    "ace-step",
    "ACE-Step 1.0",
    Role.DIFFUSION_MODEL,
    (("original", ("genre_embedder.weight", "speaker_embedder.weight")),),
    variant=lambda _shapes, _config: "1.0",
)
