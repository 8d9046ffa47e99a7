"""Names of HunyuanVideo 1.5's VAE weights in original files and in diffusers.

Original files have ldm's names, with the levels of the decoder in the order they run in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from inline_core.loading.stream import TensorSource

_RENAMED: Final = (
    (r"\.mid\.block_1\.", ".mid_block.resnets.0."),
    (r"\.mid\.block_2\.", ".mid_block.resnets.1."),
    (r"\.mid\.attn_1\.([qkv])\.", r".mid_block.attentions.0.to_\1."),
    (r"\.mid\.attn_1\.", ".mid_block.attentions.0."),
    (r"\.(down|up)\.(\d+)\.block\.", r".\1_blocks.\2.resnets."),
    (r"\.(down|up)\.(\d+)\.(down|up)sample\.", r".\1_blocks.\2.\3samplers.0."),
    (r"\.nin_shortcut\.", ".conv_shortcut."),
)


def hunyuan15_vae_sources(names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
    """Module name -> place in the file, for original files and those of diffusers alike."""
    return {
        _in_diffusers(name[len(prefix) :]): TensorSource(name)
        for name in names
        if name.startswith(prefix)
    }


def _in_diffusers(name: str) -> str:
    new = name
    for pattern, replacement in _RENAMED:
        new = re.sub(pattern, replacement, new)
    return new
