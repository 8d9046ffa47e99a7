"""Names of Krea 2's weights in original files, and diffusers' names for them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.families.key_table import KeyTable, Modules

_BLOCK: Final[Modules] = MappingProxyType(
    {
        "attn.wq": ("attn.to_q",),
        "attn.wk": ("attn.to_k",),
        "attn.wv": ("attn.to_v",),
        "attn.wo": ("attn.to_out.0",),
        "attn.gate": ("attn.to_gate",),
        "attn.qknorm.qnorm": ("attn.norm_q",),
        "attn.qknorm.knorm": ("attn.norm_k",),
        "mlp.gate": ("ff.gate",),
        "mlp.up": ("ff.up",),
        "mlp.down": ("ff.down",),
        "prenorm": ("norm1",),
        "postnorm": ("norm2",),
        "mod": ("",),
    }
)
TABLE: Final = KeyTable(
    MappingProxyType(
        {
            "first": ("img_in",),
            "tmlp.0": ("time_embed.linear_1",),
            "tmlp.2": ("time_embed.linear_2",),
            "tproj.1": ("time_mod_proj",),
            "txtmlp.0": ("txt_in.norm",),
            "txtmlp.1": ("txt_in.linear_1",),
            "txtmlp.3": ("txt_in.linear_2",),
            "txtfusion.projector": ("text_fusion.projector",),
            "last.linear": ("final_layer.linear",),
            "last.norm": ("final_layer.norm",),
            "last.modulation": ("final_layer",),
        }
    ),
    (
        ("blocks", "transformer_blocks", _BLOCK),
        ("txtfusion.layerwise_blocks", "text_fusion.layerwise_blocks", _BLOCK),
        ("txtfusion.refiner_blocks", "text_fusion.refiner_blocks", _BLOCK),
    ),
    leaves=MappingProxyType({"scale": "weight", "lin": "scale_shift_table"}),
    folded=frozenset({"scale_shift_table"}),
)
