"""T5, UMT5 and ByT5 encoders."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config, Layouts
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

_LARGEST_BYTE_VOCABULARY: Final = 2048  # ByT5 has 384 tokens, Glyph-ByT5 1510
_QUERY: Final = ("encoder.block.0.layer.0.SelfAttention.q.weight", "blocks.0.attn.q.weight")
_BIAS: Final = "encoder.block.{}.layer.0.SelfAttention.relative_attention_bias.weight"
_OWN_BIAS: Final = "blocks.{}.pos_embedding.embedding.weight"
_EMBEDDINGS: Final = ("shared.weight", "encoder.embed_tokens.weight", "token_embedding.weight")
_LAYOUTS: Final[Layouts] = (
    ("transformers", (_QUERY[0],)),
    ("original", (_QUERY[1], "token_embedding.weight")),
)


def _config(shapes: Shapes) -> Config:
    vocabulary, width = shapes.shape(*_EMBEDDINGS)
    buckets, heads = shapes.shape(_BIAS.format(0), _OWN_BIAS.format(0))
    gated = ("encoder.block.0.layer.1.DenseReluDense.wi_0.weight", "blocks.0.ffn.gate.0.weight")
    return {
        "vocab_size": vocabulary,
        "d_model": width,
        "d_kv": shapes.rows(*_QUERY) // heads,
        "d_ff": shapes.columns(
            "encoder.block.0.layer.1.DenseReluDense.wo.weight", "blocks.0.ffn.fc2.weight"
        ),
        "num_layers": shapes.count("encoder.block.", "blocks."),
        "num_heads": heads,
        "relative_attention_num_buckets": buckets,
        "feed_forward_proj": "gated-gelu" if shapes.has(*gated) else "relu",
    }


def _geometry(shapes: Shapes, _: Config) -> dict[str, int]:
    vocabulary, width = shapes.shape(*_EMBEDDINGS)
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "n_layers": shapes.count("encoder.block.", "blocks."),
    }


def _is_umt5(shapes: Shapes) -> bool:
    # T5 has position biases in the first block only.
    return shapes.has(_BIAS.format(1), _OWN_BIAS.format(1))


def _is_byt5(shapes: Shapes) -> bool:
    return shapes.has(*_EMBEDDINGS) and shapes.rows(*_EMBEDDINGS) <= _LARGEST_BYTE_VOCABULARY


UMT5: Final = Architecture(
    "umt5",
    "UMT5",
    Role.TEXT_ENCODER,
    _LAYOUTS,
    class_name="UMT5EncoderModel",
    config=_config,
    geometry=_geometry,
    condition=_is_umt5,
    evidence="SelfAttention and relative_attention_bias keys",
)
BYT5: Final = Architecture(
    "byt5",
    "ByT5",
    Role.TEXT_ENCODER,
    _LAYOUTS[:1],
    class_name="T5EncoderModel",
    config=_config,
    geometry=_geometry,
    condition=_is_byt5,
    evidence="SelfAttention keys and a small vocabulary",
)
T5: Final = Architecture(
    "t5",
    "T5",
    Role.TEXT_ENCODER,
    _LAYOUTS[:1],
    class_name="T5EncoderModel",
    config=_config,
    geometry=_geometry,
    evidence="SelfAttention keys",
)
