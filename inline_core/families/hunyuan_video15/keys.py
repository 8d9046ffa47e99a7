"""Names of HunyuanVideo 1.5's weights in original files, and diffusers' names for them.

Tencent's files have q, k and v apart; others join them, as HunyuanVideo did (`img_attn_qkv`), or
call everything as ComfyUI does inside (`img_attn.qkv`).  All three can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from inline_core.families.key_table import KeyTable, Modules
from inline_core.loading.adapters import AdapterTarget

_OUTER: Final[Modules] = MappingProxyType(
    {
        "img_in.proj": ("x_embedder.proj",),
        "txt_in.input_embedder": ("context_embedder.proj_in",),
        "time_in.mlp.0": ("time_embed.timestep_embedder.linear_1",),
        "time_in.mlp.2": ("time_embed.timestep_embedder.linear_2",),
        "byt5_in.layernorm": ("context_embedder_2.norm",),
        "byt5_in.fc1": ("context_embedder_2.linear_1",),
        "byt5_in.fc2": ("context_embedder_2.linear_2",),
        "byt5_in.fc3": ("context_embedder_2.linear_3",),
        "vision_in.proj.0": ("image_embedder.norm_in",),
        "vision_in.proj.1": ("image_embedder.linear_1",),
        "vision_in.proj.3": ("image_embedder.linear_2",),
        "vision_in.proj.4": ("image_embedder.norm_out",),
        "cond_type_embedding": ("cond_type_embed",),
        "final_layer.linear": ("proj_out",),
        "final_layer.adaLN_modulation.1": ("norm_out.linear",),
    }
)
_TEXT: Final = "context_embedder.time_text_embed"
_TEXT_OUTER: Final[Modules] = MappingProxyType(
    {
        "txt_in.t_embedder.mlp.0": (f"{_TEXT}.timestep_embedder.linear_1",),
        "txt_in.t_embedder.mlp.2": (f"{_TEXT}.timestep_embedder.linear_2",),
        "txt_in.c_embedder.linear_1": (f"{_TEXT}.text_embedder.linear_1",),
        "txt_in.c_embedder.linear_2": (f"{_TEXT}.text_embedder.linear_2",),
    }
)
_COMFY_OUTER: Final[Modules] = MappingProxyType(
    {
        "time_in.in_layer": ("time_embed.timestep_embedder.linear_1",),
        "time_in.out_layer": ("time_embed.timestep_embedder.linear_2",),
        "txt_in.t_embedder.in_layer": (f"{_TEXT}.timestep_embedder.linear_1",),
        "txt_in.t_embedder.out_layer": (f"{_TEXT}.timestep_embedder.linear_2",),
        "txt_in.c_embedder.in_layer": (f"{_TEXT}.text_embedder.linear_1",),
        "txt_in.c_embedder.out_layer": (f"{_TEXT}.text_embedder.linear_2",),
    }
)
_BLOCK: Final[Modules] = MappingProxyType(
    {
        "img_mod.linear": ("norm1.linear",),
        "txt_mod.linear": ("norm1_context.linear",),
        "img_attn_q_norm": ("attn.norm_q",),
        "img_attn_k_norm": ("attn.norm_k",),
        "txt_attn_q_norm": ("attn.norm_added_q",),
        "txt_attn_k_norm": ("attn.norm_added_k",),
        "img_attn_proj": ("attn.to_out.0",),
        "txt_attn_proj": ("attn.to_add_out",),
        "img_mlp.fc1": ("ff.net.0.proj",),
        "img_mlp.fc2": ("ff.net.2",),
        "txt_mlp.fc1": ("ff_context.net.0.proj",),
        "txt_mlp.fc2": ("ff_context.net.2",),
    }
)
_APART: Final[Modules] = MappingProxyType(
    {
        "img_attn_q": ("attn.to_q",),
        "img_attn_k": ("attn.to_k",),
        "img_attn_v": ("attn.to_v",),
        "txt_attn_q": ("attn.add_q_proj",),
        "txt_attn_k": ("attn.add_k_proj",),
        "txt_attn_v": ("attn.add_v_proj",),
    }
)
_PICTURE: Final = ("attn.to_q", "attn.to_k", "attn.to_v")
_WORDS: Final = ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj")
_JOINED: Final[Modules] = MappingProxyType({"img_attn_qkv": _PICTURE, "txt_attn_qkv": _WORDS})
_COMFY: Final[Modules] = MappingProxyType(
    {
        "img_mod.lin": ("norm1.linear",),
        "txt_mod.lin": ("norm1_context.linear",),
        "img_attn.qkv": _PICTURE,
        "txt_attn.qkv": _WORDS,
        "img_attn.norm.query_norm": ("attn.norm_q",),
        "img_attn.norm.key_norm": ("attn.norm_k",),
        "txt_attn.norm.query_norm": ("attn.norm_added_q",),
        "txt_attn.norm.key_norm": ("attn.norm_added_k",),
        "img_attn.proj": ("attn.to_out.0",),
        "txt_attn.proj": ("attn.to_add_out",),
        "img_mlp.0": ("ff.net.0.proj",),
        "img_mlp.2": ("ff.net.2",),
        "txt_mlp.0": ("ff_context.net.0.proj",),
        "txt_mlp.2": ("ff_context.net.2",),
    }
)
_REFINER: Final[Modules] = MappingProxyType(
    {
        "norm1": ("norm1",),
        "norm2": ("norm2",),
        "adaLN_modulation.1": ("norm_out.linear",),
        "self_attn_qkv": _PICTURE,
        "self_attn_proj": ("attn.to_out.0",),
        "mlp.fc1": ("ff.net.0.proj",),
        "mlp.fc2": ("ff.net.2",),
    }
)
_COMFY_REFINER: Final[Modules] = MappingProxyType(
    {
        "norm1": ("norm1",),
        "norm2": ("norm2",),
        "adaLN_modulation.1": ("norm_out.linear",),
        "self_attn.qkv": _PICTURE,
        "self_attn.proj": ("attn.to_out.0",),
        "mlp.0": ("ff.net.0.proj",),
        "mlp.2": ("ff.net.2",),
    }
)


def _table(outer: Modules, block: Modules, refiner: Modules) -> KeyTable:
    refiners = (
        "txt_in.individual_token_refiner.blocks",
        "context_embedder.token_refiner.refiner_blocks",
        refiner,
    )
    return KeyTable(
        MappingProxyType({**_OUTER, **outer}),
        (("double_blocks", "transformer_blocks", block), refiners),
        # Original files have the shift first, diffusers the scale.
        swapped=frozenset({"final_layer.adaLN_modulation.1"}),
    )


# Every spelling of a file.
TABLE: Final = _table(
    MappingProxyType({**_TEXT_OUTER, **_COMFY_OUTER}),
    MappingProxyType({**_BLOCK, **_APART, **_JOINED, **_COMFY}),
    MappingProxyType({**_REFINER, **_COMFY_REFINER}),
)
# A table tells one spelling of each linear to adapters, so that they have one for each.
_SPELLINGS: Final = (
    _table(_COMFY_OUTER, _COMFY, _COMFY_REFINER),
    _table(_TEXT_OUTER, MappingProxyType({**_BLOCK, **_JOINED}), _REFINER),
    _table(_TEXT_OUTER, MappingProxyType({**_BLOCK, **_APART}), _REFINER),
)


def adapter_targets(parameters: Iterable[str]) -> dict[str, list[AdapterTarget]]:
    """Every spelling of a linear to the weights it means (see `KeyTable.adapter_targets`)."""
    names = list(parameters)
    found: Mapping[str, list[AdapterTarget]] = {}
    for table in _SPELLINGS:
        found = {**found, **table.adapter_targets(names)}
    return dict(found)
