"""Names of MiniMax H3's weights in original single files, and diffusers' names for them.

Source: diffusers' converter.  Rows of a fused projection lie as query, key and value one after the
other, as in all files that are published as one; the gate of a feed-forward lies before its value.
"""

from __future__ import annotations

from typing import Final

from inline_core.families.key_table import KeyTable, Modules

_BLOCK: Final[Modules] = {
    "attn.qkv_proj": ("attn.to_q", "attn.to_k", "attn.to_v"),
    "attn.q_norm": ("attn.norm_q",),
    "attn.k_norm": ("attn.norm_k",),
    "attn.out_proj": ("attn.to_out.0",),
    "mlp.fc1": ("ff.net.0.proj",),
    "mlp.fc2": ("ff.net.2",),
    "norm1": ("norm1",),
    "norm2": ("norm2",),
    "adaln_proj.linear": ("adaln_proj.linear",),
}
_MOST_BLOCKS: Final = 200
_STACKS: Final = ("blocks", "token_refiner.blocks")
TABLE: Final = KeyTable(
    outer={
        "time_embedder.proj_in": ("time_embedder.linear_1",),
        "time_embedder.proj_out": ("time_embedder.linear_2",),
        "video_patch_proj": ("proj_in",),
        "audio_patch_proj": ("audio_proj_in",),
        "condition_proj": ("context_embedder",),
        "final_layer.norm": ("norm_out.norm",),
        "final_layer.adaln_proj.linear": ("norm_out.linear",),
        "final_layer.video_out": ("proj_out",),
        "final_layer.audio_out": ("audio_proj_out",),
    },
    groups=(
        ("blocks", "transformer_blocks", _BLOCK),
        ("token_refiner.blocks", "token_refiner.refiner_blocks", _BLOCK),
    ),
    swapped=frozenset(
        f"{stack}.{index}.mlp.fc1" for stack in _STACKS for index in range(_MOST_BLOCKS)
    ),
    ignorable=("rope.inv_freq",),
)
