"""Attention over video and text, each row as if it were alone.

The processor of diffusers makes a mask of all tokens by all tokens, which takes gigabytes for a
video.  Here rows whose texts have one length are attended to together, cut to it, without a mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn
from diffusers.models.embeddings import apply_rotary_emb

from inline_core.families.row_lengths import RowLengths

if TYPE_CHECKING:
    from torch import Tensor


class JointAttention:
    """The attention of HunyuanVideo 1.5's blocks; `lengths` is shared by all of one model."""

    def __init__(self, lengths: RowLengths) -> None:
        self._lengths = lengths

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor,
        image_rotary_emb: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """`hidden_states` (rows, places, width) and text (rows, tokens, width) -> the same.

        `attention_mask` (rows, tokens) is True for real tokens; padding comes out as a bias.
        Source: HunyuanVideo15AttnProcessor2_0.
        """
        shape = (attn.heads, -1)
        picture = [
            project(hidden_states).unflatten(2, shape)
            for project in (attn.to_q, attn.to_k, attn.to_v)
        ]  # 3 x (rows, places, heads, head width)
        text = [
            project(encoder_hidden_states).unflatten(2, shape)
            for project in (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj)
        ]  # 3 x (rows, tokens, heads, head width)
        for index, norm in enumerate((attn.norm_q, attn.norm_k)):
            turned = apply_rotary_emb(norm(picture[index]), image_rotary_emb, sequence_dim=1)
            picture[index] = turned  # (rows, places, heads, head width)
        for index, norm in enumerate((attn.norm_added_q, attn.norm_added_k)):
            text[index] = norm(text[index])  # (rows, tokens, heads, head width)
        seen = torch.empty_like(picture[0])  # (rows, places, heads, head width)
        read = torch.zeros_like(text[0])  # (rows, tokens, heads, head width)
        places = hidden_states.shape[1]
        for length, rows in self._lengths.groups(attention_mask).items():
            query, key, value = (
                torch.cat([one[rows], other[rows, :length]], dim=1)
                for one, other in zip(picture, text, strict=True)
            )  # (some rows, places + length, heads, head width)
            output = dispatch_attention_fn(query, key, value)
            seen[rows] = output[:, :places]
            read[rows, :length] = output[:, places:]
        made = attn.to_out[1](attn.to_out[0](seen.flatten(2, 3)))  # (rows, places, width)
        return made, attn.to_add_out(read.flatten(2, 3))


def attend_jointly(model: Any) -> None:
    """Give the attention of all blocks of a HunyuanVideo15Transformer3DModel this processor."""
    lengths = RowLengths()
    for block in model.transformer_blocks:
        block.attn.set_processor(JointAttention(lengths))
