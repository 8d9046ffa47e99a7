"""All-in-one checkpoints as people download them, from the modules of their components."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import torch

State = dict[str, torch.Tensor]
_OPEN_CLIP: Final = (
    (r"^text_model\.embeddings\.token_embedding\.", "token_embedding."),
    (r"^text_model\.embeddings\.position_embedding\.weight$", "positional_embedding"),
    (r"^text_model\.final_layer_norm\.", "ln_final."),
    (r"^text_model\.encoder\.layers\.", "transformer.resblocks."),
    (r"\.layer_norm(\d)\.", r".ln_\1."),
    (r"\.self_attn\.out_proj\.", ".attn.out_proj."),
    (r"\.mlp\.fc1\.", ".mlp.c_fc."),
    (r"\.mlp\.fc2\.", ".mlp.c_proj."),
)


def open_clip(state: Mapping[str, torch.Tensor]) -> State:
    """A text encoder of transformers with the names of OpenCLIP: q, k, v fused, the projection
    turned."""
    made: State = {"logit_scale": torch.tensor(4.6)}
    for name, tensor in state.items():
        if ".self_attn.q_proj." in name:
            parts = [state[name.replace("q_proj", f"{kind}_proj")] for kind in "qkv"]
            new = re.sub(r"\.self_attn\.q_proj\.", ".attn.in_proj_", name)
            made[_renamed(new)] = torch.cat(parts)
        elif name == "text_projection.weight":
            made["text_projection"] = tensor.t().contiguous()
        elif not re.search(r"\.self_attn\.[kv]_proj\.", name):
            made[_renamed(name)] = tensor
    return made


def _renamed(name: str) -> str:
    for pattern, new in _OPEN_CLIP:
        name = re.sub(pattern, new, name)
    return name


def joined(parts: Mapping[str, Mapping[str, torch.Tensor]]) -> State:
    """One file of several components, each below its prefix, and what training left in it."""
    made = {
        prefix + name: tensor for prefix, part in parts.items() for name, tensor in part.items()
    }
    return made | {"alphas_cumprod": torch.ones(4), "model_ema.decay": torch.tensor(1.0)}
