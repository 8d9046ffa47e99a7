"""Names of Qwen-Image 2.1's weights: ComfyUI joins two matrices, the rest is as in diffusers.

Source: `convert_qwen_image21_transformer_checkpoint_to_diffusers` of diffusers.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.families.key_table import KeyTable, Modules

_BLOCK: Final[Modules] = MappingProxyType(
    {"img_mlp.gate_up": ("img_mlp.gate_layer", "img_mlp.proj")}
)
TABLE: Final = KeyTable(
    MappingProxyType({}), (("transformer_blocks", "transformer_blocks", _BLOCK),)
)
