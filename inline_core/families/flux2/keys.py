"""Names of FLUX.2's weights in files, and the module's names for them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.families.key_table import KeyTable, Modules

_OUTER: Final[Modules] = MappingProxyType(
    {
        "img_in": ("x_embedder",),
        "txt_in": ("context_embedder",),
        "time_in.in_layer": ("time_guidance_embed.timestep_embedder.linear_1",),
        "time_in.out_layer": ("time_guidance_embed.timestep_embedder.linear_2",),
        "guidance_in.in_layer": ("time_guidance_embed.guidance_embedder.linear_1",),
        "guidance_in.out_layer": ("time_guidance_embed.guidance_embedder.linear_2",),
        "double_stream_modulation_img.lin": ("double_stream_modulation_img.linear",),
        "double_stream_modulation_txt.lin": ("double_stream_modulation_txt.linear",),
        "single_stream_modulation.lin": ("single_stream_modulation.linear",),
        "final_layer.linear": ("proj_out",),
        "final_layer.adaLN_modulation.1": ("norm_out.linear",),
    }
)
_DOUBLE: Final[Modules] = MappingProxyType(
    {
        "img_attn.qkv": ("attn.to_q", "attn.to_k", "attn.to_v"),
        "img_attn.proj": ("attn.to_out.0",),
        "img_attn.norm.query_norm": ("attn.norm_q",),
        "img_attn.norm.key_norm": ("attn.norm_k",),
        "img_mlp.0": ("ff.linear_in",),
        "img_mlp.2": ("ff.linear_out",),
        "txt_attn.qkv": ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"),
        "txt_attn.proj": ("attn.to_add_out",),
        "txt_attn.norm.query_norm": ("attn.norm_added_q",),
        "txt_attn.norm.key_norm": ("attn.norm_added_k",),
        "txt_mlp.0": ("ff_context.linear_in",),
        "txt_mlp.2": ("ff_context.linear_out",),
    }
)
_SINGLE: Final[Modules] = MappingProxyType(
    {
        "linear1": ("attn.to_qkv_mlp_proj",),
        "linear2": ("attn.to_out",),
        "norm.query_norm": ("attn.norm_q",),
        "norm.key_norm": ("attn.norm_k",),
    }
)
TABLE: Final = KeyTable(
    _OUTER,
    (
        ("double_blocks", "transformer_blocks", _DOUBLE),
        ("single_blocks", "single_transformer_blocks", _SINGLE),
    ),
    # Original files have shift before scale in this one, diffusers the other way round.
    swapped=frozenset({"final_layer.adaLN_modulation.1"}),
)
