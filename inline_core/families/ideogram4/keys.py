"""Names of Ideogram 4's weights in original files, and diffusers' names for them.

Source: what diffusers does with the names of adapters for the original model
(`_convert_non_diffusers_ideogram4_lora_to_diffusers`).  That says nothing about norms and what
stands outside of the blocks: those are taken to be called as in diffusers.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.families.key_table import KeyTable, Modules

_BLOCK: Final[Modules] = MappingProxyType(
    {
        "attention.qkv": ("attention.to_q", "attention.to_k", "attention.to_v"),
        "attention.o": ("attention.to_out.0",),
    }
)
TABLE: Final = KeyTable(MappingProxyType({}), (("layers", "layers", _BLOCK),))
