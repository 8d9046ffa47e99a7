"""Prompts for Stable Diffusion 3: both CLIPs side by side, and T5 after them where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch.nn import functional

from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.text_encoders.clip import clip_tokens, states
from inline_core.families.text_encoders.t5 import t5_tokens

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.sampling.values import Conditioning

CLIP_TOKENS: Final = 77
T5_TOKENS: Final = 256
_WITH_T5: Final = 3
_BEFORE_LAST: Final = -2


def encode(encoders: Encoders, conditioning: Conditioning) -> EncodedPrompt:
    """Encode one prompt as StableDiffusion3Pipeline does; device thread.

    The features are (77, both widths) without T5, else (77 + 256, width of T5).
    """
    layers, pooled, cut = [], [], 0
    for position in range(2):
        with encoders.open(position) as encoder:
            tokens, cut = clip_tokens(encoder, conditioning.prompt)
            found = states(encoder, tokens)
            layers.append(found.layers[_BEFORE_LAST][0])  # (77, width)
            # CLIP-L files without a projection were made for this: theirs is the identity.
            whole = found.pooled if found.projected is None else found.projected
            pooled.append(whole[0])  # (width,)
    clip = torch.cat(layers, dim=-1)  # (77, both widths)
    together = torch.cat(pooled)  # (both widths,)
    if len(encoders) < _WITH_T5:
        note = "No T5 text encoder was found: both CLIPs alone read the prompt, 77 tokens of it"
        return EncodedPrompt(clip, cut, together, notes=(note,))
    with encoders.open(2) as encoder:
        tokens, _, cut = t5_tokens(encoder, conditioning.prompt, T5_TOKENS)
        words = encoder.model(input_ids=tokens)[0][0]  # (256, width)
    features = torch.cat([widened(clip, words.shape[-1]).to(words.dtype), words])
    return EncodedPrompt(features, cut, together)  # features (333, width)


def widened(features: Tensor, width: int) -> Tensor:
    """Features (tokens, width) with zeros up to a width."""
    return functional.pad(features, (0, width - features.shape[-1]))
