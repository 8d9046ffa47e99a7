"""Names of FLUX.2's weights in files, and the module's names for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from inline_core.loading.adapters import AdapterTarget
from inline_core.loading.stream import TensorSource

# Original module -> diffusers modules; three of them are equal row blocks of a fused one.
_Modules = Mapping[str, tuple[str, ...]]
_OUTER: Final[_Modules] = MappingProxyType(
    {
        "img_in": ("x_embedder",),
        "txt_in": ("context_embedder",),
        "time_in.in_layer": ("time_guidance_embed.timestep_embedder.linear_1",),
        "time_in.out_layer": ("time_guidance_embed.timestep_embedder.linear_2",),
        "guidance_in.in_layer": ("time_guidance_embed.guidance_embedder.linear_1",),
        "guidance_in.out_layer": ("time_guidance_embed.guidance_embedder.linear_2",),
        "double_stream_modulation_img.lin": ("double_stream_modulation_img.linear",),
        "double_stream_modulation_txt.lin": ("double_stream_modulation_txt.linear",),
        "single_stream_modulation.lin": ("single_stream_modulation.linear",),
        "final_layer.linear": ("proj_out",),
        "final_layer.adaLN_modulation.1": ("norm_out.linear",),
    }
)
_DOUBLE: Final[_Modules] = MappingProxyType(
    {
        "img_attn.qkv": ("attn.to_q", "attn.to_k", "attn.to_v"),
        "img_attn.proj": ("attn.to_out.0",),
        "img_attn.norm.query_norm": ("attn.norm_q",),
        "img_attn.norm.key_norm": ("attn.norm_k",),
        "img_mlp.0": ("ff.linear_in",),
        "img_mlp.2": ("ff.linear_out",),
        "txt_attn.qkv": ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"),
        "txt_attn.proj": ("attn.to_add_out",),
        "txt_attn.norm.query_norm": ("attn.norm_added_q",),
        "txt_attn.norm.key_norm": ("attn.norm_added_k",),
        "txt_mlp.0": ("ff_context.linear_in",),
        "txt_mlp.2": ("ff_context.linear_out",),
    }
)
_SINGLE: Final[_Modules] = MappingProxyType(
    {
        "linear1": ("attn.to_qkv_mlp_proj",),
        "linear2": ("attn.to_out",),
        "norm.query_norm": ("attn.norm_q",),
        "norm.key_norm": ("attn.norm_k",),
    }
)
# (original group, diffusers group, what is in each block of it)
_GROUPS: Final = (
    ("double_blocks", "transformer_blocks", _DOUBLE),
    ("single_blocks", "single_transformer_blocks", _SINGLE),
)
# Original files have shift before scale in this one, diffusers the other way round.
_SWAPPED: Final = "final_layer.adaLN_modulation.1"


def transformer_sources(names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
    """Module name -> place in the file, for the original and the diffusers layout alike."""
    sources: dict[str, TensorSource] = {}
    for name in names:
        if not name.startswith(prefix):
            continue
        module, _, leaf = name[len(prefix) :].rpartition(".")
        modules = _in_diffusers(module)
        # Norms are called `scale` in original files.
        leaf = "weight" if leaf == "scale" else leaf
        for part, target in enumerate(modules):
            swapped = module == _SWAPPED
            source = TensorSource(name, part, len(modules), swapped=swapped)
            sources[f"{target}.{leaf}"] = source
    return sources


def adapter_targets(parameters: Iterable[str]) -> dict[str, list[AdapterTarget]]:
    """Every spelling of a linear module, diffusers' and the original's, to the weights it means."""
    targets: dict[str, list[AdapterTarget]] = {}
    for parameter in parameters:
        module = parameter.removesuffix(".weight")
        if module == parameter:
            continue
        targets.setdefault(module, []).append(AdapterTarget(parameter))
        original, part, parts = _in_original(module)
        # The rows of a change for the swapped one would lie in another order.
        if original not in {module, _SWAPPED}:
            targets.setdefault(original, []).append(AdapterTarget(parameter, part, parts))
    return targets


def _in_diffusers(module: str) -> tuple[str, ...]:
    """The modules that an original one became; a name of diffusers stays as it is."""
    for original, diffusers, inner in _GROUPS:
        match = re.fullmatch(rf"{original}\.(\d+)\.(.+)", module)
        if match and match.group(2) in inner:
            return tuple(f"{diffusers}.{match.group(1)}.{name}" for name in inner[match.group(2)])
    return _OUTER.get(module, (module,))


def _in_original(module: str) -> tuple[str, int, int]:
    """The original module that a module of diffusers is a part of, which part, and of how many."""
    for original, diffusers, inner in _GROUPS:
        match = re.fullmatch(rf"{diffusers}\.(\d+)\.(.+)", module)
        if match:
            found = _owner(match.group(2), inner)
            return (f"{original}.{match.group(1)}.{found[0]}", *found[1:])
    return _owner(module, _OUTER)


def _owner(module: str, table: _Modules) -> tuple[str, int, int]:
    for original, modules in table.items():
        if module in modules:
            return original, modules.index(module), len(modules)
    return module, 0, 1
