"""Names of Chroma's weights in original files, and diffusers' names for them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.families.flux1.keys import DOUBLE, OUTER, SINGLE
from inline_core.families.key_table import KeyTable

TABLE: Final = KeyTable(
    OUTER,
    (
        ("double_blocks", "transformer_blocks", DOUBLE),
        ("single_blocks", "single_transformer_blocks", SINGLE),
        (
            "distilled_guidance_layer.layers",
            "distilled_guidance_layer.layers",
            MappingProxyType({"in_layer": ("linear_1",), "out_layer": ("linear_2",)}),
        ),
    ),
)
