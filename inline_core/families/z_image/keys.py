"""Names of Z-Image's and the VAE's weights in files, and the module's names for them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from inline_core.loading.adapters import AdapterTarget
from inline_core.loading.stream import TensorSource

# Present in the original file, unused by the architecture.
IGNORABLE: Final = ("norm_final.weight",)

_RENAMES: Final = (
    (r"^final_layer\.", "all_final_layer.2-1."),
    (r"^x_embedder\.", "all_x_embedder.2-1."),
    (r"\.attention\.out\.", ".attention.to_out.0."),
    (r"\.attention\.k_norm\.", ".attention.norm_k."),
    (r"\.attention\.q_norm\.", ".attention.norm_q."),
)


def transformer_sources(names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
    """Module name -> place in the file, for the original and the diffusers layout alike.

    The fused `attention.qkv` of the original is three equal blocks of rows.
    """
    sources: dict[str, TensorSource] = {}
    for name in names:
        if not name.startswith(prefix):
            continue
        bare = name[len(prefix) :]
        if ".attention.qkv." in bare:
            for part, letter in enumerate("qkv"):
                target = bare.replace(".attention.qkv.", f".attention.to_{letter}.")
                sources[target] = TensorSource(name, part, 3)
            continue
        for pattern, new in _RENAMES:
            bare = re.sub(pattern, new, bare)
        sources[bare] = TensorSource(name)
    return sources


def adapter_targets(parameters: Iterable[str]) -> dict[str, list[AdapterTarget]]:
    """Every spelling of a linear module, diffusers' and the original's, to the weights it means."""
    targets: dict[str, list[AdapterTarget]] = {}
    for parameter in parameters:
        module = parameter.removesuffix(".weight")
        if module == parameter:
            continue
        targets.setdefault(module, []).append(AdapterTarget(parameter))
        fused = re.sub(r"\.attention\.to_[qkv]$", ".attention.qkv", module)
        if fused != module:
            part = "qkv".index(module[-1])
            targets.setdefault(fused, []).append(AdapterTarget(parameter, part, 3))
            continue
        original = module.replace(".attention.to_out.0", ".attention.out")
        original = original.replace("all_final_layer.2-1.", "final_layer.")
        original = original.replace("all_x_embedder.2-1", "x_embedder")
        if original != module:
            targets.setdefault(original, []).append(AdapterTarget(parameter))
    return targets


def vae_sources(names: Iterable[str], blocks: int) -> dict[str, TensorSource]:
    """Module name -> place in the file, for the ldm and the diffusers layout alike.

    ldm counts its up blocks from the other end and has its attention as 1x1 convolutions.
    """
    return {_vae_name(name, blocks): _vae_source(name) for name in names}


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


def text_encoder_sources(names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
    """Module name -> place in the file; the language head of a full model is left out."""
    return {name[len(prefix) :]: TensorSource(name) for name in names if name.startswith(prefix)}
