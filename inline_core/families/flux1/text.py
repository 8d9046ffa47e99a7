"""Prompts for FLUX.1: CLIP for the prompt as a whole, T5 for its words; and pictures beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch.nn import functional

from inline_core.families.autoencoders.kl_spaces import FLUX
from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.flux1.family import SCHNELL
from inline_core.families.text_encoders.clip import clip_tokens, states
from inline_core.families.text_encoders.t5 import t5_tokens

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.sampling.values import Conditioning, Latent

# Without a mask in the model the padding is a part of what it sees.
MAX_TOKENS: Final = 512
MAX_TOKENS_SCHNELL: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class ReferringPrompt(EncodedPrompt):
    """A prompt with pictures that belong to it.

    `references` are normalised latents, each (1, channels, height, width); `fills` (1, 64, height,
    width) is the mask of one that shall be filled: the pixels of each latent as channels.
    """

    references: tuple[Tensor, ...] = ()
    fills: Tensor | None = None


def with_references(prompt: EncodedPrompt, references: Sequence[Latent]) -> ReferringPrompt:
    """The prompt with pictures, normalised latents of one each, in order."""
    fills = None
    for latent in references:
        if latent.mask is not None:
            mask = torch.from_numpy(latent.mask).to(latent.samples.device)  # (height, width)
            pixels = (mask.float() / 255.0)[None, None]  # (1, 1, height, width)
            fills = functional.pixel_unshuffle(pixels, FLUX.factor)  # (1, 64, h, w)
    return ReferringPrompt(
        prompt.features,
        prompt.cut_tokens,
        prompt.pooled,
        notes=prompt.notes,
        references=tuple(latent.samples for latent in references),
        fills=fills,
    )


def encode(encoders: Encoders, conditioning: Conditioning) -> EncodedPrompt:
    """Encode one prompt as FluxPipeline does; device thread.

    What CLIP cuts (at 77 tokens) is not told: T5 reads it all, and the pipeline sees the rest.
    """
    with encoders.open(0) as encoder:
        tokens, _ = clip_tokens(encoder, conditioning.prompt)
        pooled = states(encoder, tokens).pooled[0].clone()  # (width,)
    short = conditioning.option("variant") == SCHNELL
    with encoders.open(1) as encoder:
        length = MAX_TOKENS_SCHNELL if short else MAX_TOKENS
        tokens, _, cut = t5_tokens(encoder, conditioning.prompt, length)
        features = encoder.model(input_ids=tokens)[0][0]  # (tokens, width)
    return EncodedPrompt(features, cut, pooled)
