"""Names of LongCat-Image's weights as FLUX.1's original has them, and diffusers' names."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.families.flux1.keys import key_table
from inline_core.families.key_table import Modules

_MODULATION: Final[Modules] = MappingProxyType(
    {
        "time_in.in_layer": ("time_embed.timestep_embedder.linear_1",),
        "time_in.out_layer": ("time_embed.timestep_embedder.linear_2",),
        "final_layer.adaLN_modulation.1": ("norm_out.linear",),
    }
)
TABLE: Final = key_table(_MODULATION)
