"""Names of FLUX.1's weights in original files, and diffusers' names for them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.families.key_table import KeyTable, Modules

OUTER: Final[Modules] = MappingProxyType(
    {
        "img_in": ("x_embedder",),
        "txt_in": ("context_embedder",),
        "final_layer.linear": ("proj_out",),
    }
)
_MODULATION: Final[Modules] = MappingProxyType(
    {
        "time_in.in_layer": ("time_text_embed.timestep_embedder.linear_1",),
        "time_in.out_layer": ("time_text_embed.timestep_embedder.linear_2",),
        "guidance_in.in_layer": ("time_text_embed.guidance_embedder.linear_1",),
        "guidance_in.out_layer": ("time_text_embed.guidance_embedder.linear_2",),
        "vector_in.in_layer": ("time_text_embed.text_embedder.linear_1",),
        "vector_in.out_layer": ("time_text_embed.text_embedder.linear_2",),
        "final_layer.adaLN_modulation.1": ("norm_out.linear",),
    }
)
DOUBLE: Final[Modules] = MappingProxyType(
    {
        "img_attn.qkv": ("attn.to_q", "attn.to_k", "attn.to_v"),
        "img_attn.proj": ("attn.to_out.0",),
        "img_attn.norm.query_norm": ("attn.norm_q",),
        "img_attn.norm.key_norm": ("attn.norm_k",),
        "img_mlp.0": ("ff.net.0.proj",),
        "img_mlp.2": ("ff.net.2",),
        "txt_attn.qkv": ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"),
        "txt_attn.proj": ("attn.to_add_out",),
        "txt_attn.norm.query_norm": ("attn.norm_added_q",),
        "txt_attn.norm.key_norm": ("attn.norm_added_k",),
        "txt_mlp.0": ("ff_context.net.0.proj",),
        "txt_mlp.2": ("ff_context.net.2",),
    }
)
SINGLE: Final[Modules] = MappingProxyType(
    {
        # The feed-forward part is four times as wide.
        "linear1": (("attn.to_q", 1), ("attn.to_k", 1), ("attn.to_v", 1), ("proj_mlp", 4)),
        "linear2": ("proj_out",),
        "norm.query_norm": ("attn.norm_q",),
        "norm.key_norm": ("attn.norm_k",),
    }
)


def key_table(embedders: Modules) -> KeyTable:
    """The table of a model of FLUX.1's blocks with these modules for its times and texts."""
    double = {
        **DOUBLE,
        "img_mod.lin": ("norm1.linear",),
        "txt_mod.lin": ("norm1_context.linear",),
    }
    single = {**SINGLE, "modulation.lin": ("norm.linear",)}
    return KeyTable(
        MappingProxyType({**OUTER, **embedders}),
        (
            ("double_blocks", "transformer_blocks", MappingProxyType(double)),
            ("single_blocks", "single_transformer_blocks", MappingProxyType(single)),
        ),
        # Original files have shift before scale in this one, diffusers the other way round.
        swapped=frozenset({"final_layer.adaLN_modulation.1"}),
    )


TABLE: Final = key_table(_MODULATION)
