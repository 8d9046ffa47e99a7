"""llama.cpp's names for the weights of language models, and transformers' names for the same.

Only of architectures whose weights llama.cpp leaves as they are: it permutes q and k of Llama and
Mistral and adds one to the norms of Gemma, so those would load without an error and be wrong.
Source: gguf-py's constants and tensor_mapping (MIT).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_UNCHANGED: Final = ("qwen2", "qwen2vl", "qwen3", "qwen3vl")
_OUTER: Final[Mapping[str, str]] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_INNER: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAME: Final = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")


def is_renamed(architecture: str) -> bool:
    """Say whether files of this `general.architecture` have llama.cpp's names."""
    return architecture in _UNCHANGED


def plain_name(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`; others as they are."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    block, module, leaf = match.groups()
    if block is None:
        return f"{_OUTER[module]}.{leaf}" if module in _OUTER else name
    return f"model.layers.{block}.{_INNER[module]}.{leaf}" if module in _INNER else name
