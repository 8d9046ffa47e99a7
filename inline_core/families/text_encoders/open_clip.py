"""Names of CLIP's text encoders in the layout of OpenCLIP, as SDXL and SD2 checkpoints have them.

Transformers' modules take the same weights: query, key and value lie fused in one matrix, and the
projection is multiplied from the other side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

from inline_core.loading.stream import TensorSource

# In checkpoints, and not a part of the text encoder's work.
IGNORABLE: Final = ("logit_scale", "attn_mask")
_INNER: Final = "text_model."
_OUTER: Final = MappingProxyType(
    {
        "token_embedding.weight": "embeddings.token_embedding.weight",
        "positional_embedding": "embeddings.position_embedding.weight",
        "ln_final.weight": "final_layer_norm.weight",
        "ln_final.bias": "final_layer_norm.bias",
    }
)
_BLOCK: Final = MappingProxyType(
    {
        "ln_1": "layer_norm1",
        "ln_2": "layer_norm2",
        "attn.out_proj": "self_attn.out_proj",
        "mlp.c_fc": "mlp.fc1",
        "mlp.c_proj": "mlp.fc2",
    }
)
_FUSED: Final = ("q_proj", "k_proj", "v_proj")


def sources(names: Iterable[str], prefix: str = "") -> dict[str, TensorSource]:
    """Name in transformers -> place in the file, for all names behind the prefix."""
    found: dict[str, TensorSource] = {}
    for name in names:
        bare = name[len(prefix) :]
        if not name.startswith(prefix) or bare in IGNORABLE:
            continue
        block = re.fullmatch(r"transformer\.resblocks\.(\d+)\.(.+?)[._](weight|bias)", bare)
        if bare == "text_projection":
            found["text_projection.weight"] = TensorSource(name, transposed=True)
        elif block is None:
            new = _OUTER.get(bare)
            found[_INNER + new if new else bare] = TensorSource(name)
        else:
            number, module, leaf = block.groups()
            start = f"{_INNER}encoder.layers.{number}."
            if module == "attn.in_proj":
                for part, projection in enumerate(_FUSED):
                    place = TensorSource(name, part, len(_FUSED))
                    found[f"{start}self_attn.{projection}.{leaf}"] = place
            else:
                found[f"{start}{_BLOCK.get(module, module)}.{leaf}"] = TensorSource(name)
    return found
