"""Attention over rows of different lengths, each as if it were alone.

Rows of a batch are padded to the longest.  Masked attention over the padding gives the right
values, but sums in another order, so a picture would differ in its last bits with whoever shares
the pass; and a mask rules out the fastest kernels.  So rows of one length are attended to together,
cut to that length, without a mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from diffusers.models.transformers.transformer_z_image import ZSingleStreamAttnProcessor

from inline_core.families.row_lengths import RowLengths

if TYPE_CHECKING:
    from torch import Tensor


class LengthwiseAttention(ZSingleStreamAttnProcessor):  # type: ignore[misc]
    """The attention of Z-Image's blocks; `lengths` is shared by all of one model."""

    def __init__(self, lengths: RowLengths) -> None:
        super().__init__()
        self._lengths = lengths

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        freqs_cis: Tensor | None = None,
    ) -> Tensor:
        """`hidden_states` (rows, tokens, width) -> the same; padding comes out as 0."""
        if attention_mask is None or attention_mask.ndim != 2:  # noqa: PLR2004 - (rows, tokens)
            result: Tensor = super().__call__(
                attn, hidden_states, encoder_hidden_states, attention_mask, freqs_cis
            )
            return result
        output = torch.zeros_like(hidden_states)  # (rows, tokens, width)
        for length, rows in self._lengths.groups(attention_mask).items():
            freqs = None if freqs_cis is None else freqs_cis[rows, :length]
            output[rows, :length] = super().__call__(
                attn, hidden_states[rows, :length], None, None, freqs
            )
        return output


def attend_lengthwise(model: Any) -> None:
    """Give every attention of a ZImageTransformer2DModel this processor."""
    lengths = RowLengths()
    for module in model.modules():
        if isinstance(getattr(module, "processor", None), ZSingleStreamAttnProcessor):
            module.set_processor(LengthwiseAttention(lengths))
