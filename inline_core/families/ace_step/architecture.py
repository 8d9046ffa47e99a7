"""How the condition encoder of ACE-Step 1.5 is told, and what its shapes say."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role


def _config(shapes: Shapes) -> Config:
    """Rope, window and the kind of each layer are in no shape: the class has the published ones."""
    layer = "lyric_encoder.layers.0"
    head_dim = shapes.rows(f"{layer}.self_attn.norm_q.weight")
    hidden, text = shapes.shape("text_projector.weight")
    return {
        "hidden_size": hidden,
        "text_hidden_dim": text,
        "intermediate_size": shapes.rows(f"{layer}.mlp.gate_proj.weight"),
        "timbre_hidden_dim": shapes.columns("timbre_encoder.embed_tokens.weight"),
        "num_lyric_encoder_hidden_layers": shapes.count("lyric_encoder.layers."),
        "num_timbre_encoder_hidden_layers": shapes.count("timbre_encoder.layers."),
        "num_attention_heads": shapes.rows(f"{layer}.self_attn.to_q.weight") // head_dim,
        "num_key_value_heads": shapes.rows(f"{layer}.self_attn.to_k.weight") // head_dim,
        "head_dim": head_dim,
        "attention_bias": shapes.has(f"{layer}.self_attn.to_q.bias"),
    }


ARCHITECTURES: Final = (
    Architecture(
        "ace-step-condition",
        "ACE-Step condition",
        Role.TEXT_ENCODER,
        (("diffusers", ("text_projector.weight", "timbre_encoder.special_token")),),
        class_name="AceStepConditionEncoder",
        config=_config,
        words="ACE-Step condition encoder",
    ),
)
