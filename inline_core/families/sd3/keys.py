"""Names of Stable Diffusion 3's weights in original files, and diffusers' names for them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.families.key_table import KeyTable, Modules

_OUTER: Final[Modules] = MappingProxyType(
    {
        "": ("pos_embed",),  # the table of positions, which is no module's in original files
        "x_embedder.proj": ("pos_embed.proj",),
        "context_embedder": ("context_embedder",),
        "t_embedder.mlp.0": ("time_text_embed.timestep_embedder.linear_1",),
        "t_embedder.mlp.2": ("time_text_embed.timestep_embedder.linear_2",),
        "y_embedder.mlp.0": ("time_text_embed.text_embedder.linear_1",),
        "y_embedder.mlp.2": ("time_text_embed.text_embedder.linear_2",),
        "final_layer.linear": ("proj_out",),
        "final_layer.adaLN_modulation.1": ("norm_out.linear",),
    }
)
_BLOCK: Final[Modules] = MappingProxyType(
    {
        "x_block.attn.qkv": ("attn.to_q", "attn.to_k", "attn.to_v"),
        "x_block.attn.proj": ("attn.to_out.0",),
        "x_block.attn.ln_q": ("attn.norm_q",),
        "x_block.attn.ln_k": ("attn.norm_k",),
        "x_block.attn2.qkv": ("attn2.to_q", "attn2.to_k", "attn2.to_v"),
        "x_block.attn2.proj": ("attn2.to_out.0",),
        "x_block.attn2.ln_q": ("attn2.norm_q",),
        "x_block.attn2.ln_k": ("attn2.norm_k",),
        "x_block.mlp.fc1": ("ff.net.0.proj",),
        "x_block.mlp.fc2": ("ff.net.2",),
        "x_block.adaLN_modulation.1": ("norm1.linear",),
        "context_block.attn.qkv": ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"),
        "context_block.attn.proj": ("attn.to_add_out",),
        "context_block.attn.ln_q": ("attn.norm_added_q",),
        "context_block.attn.ln_k": ("attn.norm_added_k",),
        "context_block.mlp.fc1": ("ff_context.net.0.proj",),
        "context_block.mlp.fc2": ("ff_context.net.2",),
        "context_block.adaLN_modulation.1": ("norm1_context.linear",),
    }
)


def key_table(layers: int) -> KeyTable:
    """The table of a model with so many blocks.

    Of the last one's text only a norm is left, whose shift and scale lie the other way round than
    diffusers has them, as those of the last layer.
    """
    last = f"joint_blocks.{layers - 1}.context_block.adaLN_modulation.1"
    return KeyTable(
        _OUTER,
        (("joint_blocks", "transformer_blocks", _BLOCK),),
        swapped=frozenset({"final_layer.adaLN_modulation.1", last}),
    )
