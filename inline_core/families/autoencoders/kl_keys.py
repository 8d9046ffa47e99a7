"""Names of AutoencoderKL's weights in files, and the module's names for them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from inline_core.loading.stream import TensorSource


def vae_sources(names: Iterable[str], blocks: int, prefix: str = "") -> dict[str, TensorSource]:
    """Module name -> place in the file, for the ldm and the diffusers layout alike.

    ldm counts its up blocks from the other end and has its attention as 1x1 convolutions.
    """
    return {_vae_name(name.removeprefix(prefix), blocks): _vae_source(name) for name in names}


def _vae_source(name: str) -> TensorSource:
    attention = re.search(r"\.mid\.attn_1\.(q|k|v|proj_out)\.weight$", name)
    return TensorSource(name, flatten=attention is not None)


def _vae_name(name: str, blocks: int) -> str:
    name = re.sub(r"\.down\.(\d+)\.block\.(\d+)\.", r".down_blocks.\1.resnets.\2.", name)
    name = re.sub(r"\.down\.(\d+)\.downsample\.", r".down_blocks.\1.downsamplers.0.", name)

    def up(match: re.Match[str]) -> str:
        return f".up_blocks.{blocks - 1 - int(match.group(1))}."

    name = re.sub(r"\.up\.(\d+)\.", up, name)
    name = re.sub(r"(\.up_blocks\.\d+)\.block\.", r"\1.resnets.", name)
    name = re.sub(r"(\.up_blocks\.\d+)\.upsample\.", r"\1.upsamplers.0.", name)
    name = re.sub(
        r"\.mid\.block_(\d)\.", lambda m: f".mid_block.resnets.{int(m.group(1)) - 1}.", name
    )
    if ".mid.attn_1." in name:
        name = name.replace(".mid.attn_1.norm.", ".mid_block.attentions.0.group_norm.")
        name = name.replace(".mid.attn_1.proj_out.", ".mid_block.attentions.0.to_out.0.")
        name = re.sub(r"\.mid\.attn_1\.([qkv])\.", r".mid_block.attentions.0.to_\1.", name)
    name = name.replace(".nin_shortcut.", ".conv_shortcut.")
    return re.sub(r"^(encoder|decoder)\.norm_out\.", r"\1.conv_norm_out.", name)
