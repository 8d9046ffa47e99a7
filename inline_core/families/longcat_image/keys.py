"""Names of LongCat-Image's weights as FLUX.1's original has them, and diffusers' names."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.families.flux1.keys import DOUBLE, OUTER, SINGLE
from inline_core.families.key_table import KeyTable, Modules

_MODULATION: Final[Modules] = MappingProxyType(
    {
        "time_in.in_layer": ("time_embed.timestep_embedder.linear_1",),
        "time_in.out_layer": ("time_embed.timestep_embedder.linear_2",),
        "final_layer.adaLN_modulation.1": ("norm_out.linear",),
    }
)
TABLE: Final = KeyTable(
    MappingProxyType({**OUTER, **_MODULATION}),
    (
        (
            "double_blocks",
            "transformer_blocks",
            MappingProxyType(
                {
                    **DOUBLE,
                    "img_mod.lin": ("norm1.linear",),
                    "txt_mod.lin": ("norm1_context.linear",),
                }
            ),
        ),
        (
            "single_blocks",
            "single_transformer_blocks",
            MappingProxyType({**SINGLE, "modulation.lin": ("norm.linear",)}),
        ),
    ),
    # Original files have shift before scale in this one, diffusers the other way round.
    swapped=frozenset({"final_layer.adaLN_modulation.1"}),
)
