"""Names of Wan's weights in original files, and diffusers' names for them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.families.key_table import KeyTable, Modules

_BLOCK: Final[Modules] = MappingProxyType(
    {
        "self_attn.q": ("attn1.to_q",),
        "self_attn.k": ("attn1.to_k",),
        "self_attn.v": ("attn1.to_v",),
        "self_attn.o": ("attn1.to_out.0",),
        "self_attn.norm_q": ("attn1.norm_q",),
        "self_attn.norm_k": ("attn1.norm_k",),
        "cross_attn.q": ("attn2.to_q",),
        "cross_attn.k": ("attn2.to_k",),
        "cross_attn.v": ("attn2.to_v",),
        "cross_attn.o": ("attn2.to_out.0",),
        "cross_attn.norm_q": ("attn2.norm_q",),
        "cross_attn.norm_k": ("attn2.norm_k",),
        "cross_attn.k_img": ("attn2.add_k_proj",),
        "cross_attn.v_img": ("attn2.add_v_proj",),
        "cross_attn.norm_k_img": ("attn2.norm_added_k",),
        "norm3": ("norm2",),
        "ffn.0": ("ffn.net.0.proj",),
        "ffn.2": ("ffn.net.2",),
    }
)
_VACE_BLOCK: Final[Modules] = MappingProxyType(
    {**_BLOCK, "before_proj": ("proj_in",), "after_proj": ("proj_out",)}
)
TABLE: Final = KeyTable(
    MappingProxyType(
        {
            "head.head": ("proj_out",),
            "head": ("",),
            "time_embedding.0": ("condition_embedder.time_embedder.linear_1",),
            "time_embedding.2": ("condition_embedder.time_embedder.linear_2",),
            "text_embedding.0": ("condition_embedder.text_embedder.linear_1",),
            "text_embedding.2": ("condition_embedder.text_embedder.linear_2",),
            "time_projection.1": ("condition_embedder.time_proj",),
            "img_emb.proj.0": ("condition_embedder.image_embedder.norm1",),
            "img_emb.proj.1": ("condition_embedder.image_embedder.ff.net.0.proj",),
            "img_emb.proj.3": ("condition_embedder.image_embedder.ff.net.2",),
            "img_emb.proj.4": ("condition_embedder.image_embedder.norm2",),
            "img_emb": ("condition_embedder.image_embedder",),
        }
    ),
    (("blocks", "blocks", _BLOCK), ("vace_blocks", "vace_blocks", _VACE_BLOCK)),
    leaves=MappingProxyType({"modulation": "scale_shift_table", "emb_pos": "pos_embed"}),
    # diffusers has a query norm for pictures that its network never uses.
    ignorable=(),
)
