"""Names of Lumina 2's weights in original files, and diffusers' names for them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.families.key_table import KeyTable, Modules

_OUTER: Final[Modules] = MappingProxyType(
    {
        "cap_embedder.0": ("time_caption_embed.caption_embedder.0",),
        "cap_embedder.1": ("time_caption_embed.caption_embedder.1",),
        "t_embedder.mlp.0": ("time_caption_embed.timestep_embedder.linear_1",),
        "t_embedder.mlp.2": ("time_caption_embed.timestep_embedder.linear_2",),
        "final_layer.adaLN_modulation.1": ("norm_out.linear_1",),
        "final_layer.linear": ("norm_out.linear_2",),
    }
)
_FEED_FORWARD: Final[Modules] = MappingProxyType(
    {
        "attention.out": ("attn.to_out.0",),
        "attention.k_norm": ("attn.norm_k",),
        "attention.q_norm": ("attn.norm_q",),
        "feed_forward.w1": ("feed_forward.linear_1",),
        "feed_forward.w2": ("feed_forward.linear_2",),
        "feed_forward.w3": ("feed_forward.linear_3",),
        "attention_norm2": ("norm2",),
    }
)
# Blocks with modulation have their first norm inside of it.
_MODULATED: Final[Modules] = MappingProxyType(
    {
        **_FEED_FORWARD,
        "attention_norm1": ("norm1.norm",),
        "adaLN_modulation.1": ("norm1.linear",),
    }
)
_PLAIN: Final[Modules] = MappingProxyType({**_FEED_FORWARD, "attention_norm1": ("norm1",)})


def key_table(heads: int, key_heads: int) -> KeyTable:
    """The table of a model; its fused q, k, v have as many rows as they have heads."""
    fused = ("attn.to_q", heads), ("attn.to_k", key_heads), ("attn.to_v", key_heads)
    modulated = MappingProxyType({**_MODULATED, "attention.qkv": fused})
    return KeyTable(
        _OUTER,
        (
            ("layers", "layers", modulated),
            ("noise_refiner", "noise_refiner", modulated),
            (
                "context_refiner",
                "context_refiner",
                MappingProxyType({**_PLAIN, "attention.qkv": fused}),
            ),
        ),
        ignorable=("norm_final.weight",),
    )
