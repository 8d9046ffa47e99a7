"""Names of Qwen-Image's weights: published files use those of diffusers."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.families.key_table import KeyTable

# ComfyUI marks edit models of late 2025 with an empty tensor.
TABLE: Final = KeyTable(MappingProxyType({}), ignorable=("__index_timestep_zero__",))
