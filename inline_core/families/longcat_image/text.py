"""Prompts for LongCat-Image: quoted words letter by letter, and the last layer of Qwen2.5-VL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from torch.nn import functional

from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.text_encoders.qwen2_5_vl import states_of_tokens, with_pictures

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.families.text_encoders.loaded import TextEncoder
    from inline_core.sampling.values import Conditioning, Latent

# Of LongCatImagePipeline and LongCatImageEditPipeline.
MAX_TOKENS: Final = 512
SEEN: Final = "<|vision_start|><|image_pad|><|vision_end|>"
_SYSTEM: Final = "<|im_start|>system\n{}<|im_end|>\n<|im_start|>user\n"
PREFIX: Final = _SYSTEM.format(
    "As an image captioning expert, generate a descriptive text prompt based on an image content, "
    "suitable for input to a text-to-image model."
)
EDIT_PREFIX: Final = _SYSTEM.format(
    "As an image editing expert, first analyze the content and attributes of the input image(s). "
    "Then, based on the user's editing instructions, clearly and precisely determine how to modify "
    "the given image(s), ensuring that only the specified parts are altered and all other aspects "
    "remain consistent with the original(s)."
)
SUFFIX: Final = "<|im_end|>\n<|im_start|>assistant\n"
_QUOTES: Final = ("''", '""', "\u2018\u2019", "\u201c\u201d")
_QUOTED: Final = re.compile("|".join(f"{left}[^{left}{right}]*?{right}" for left, right in _QUOTES))
_APOSTROPHE: Final = re.compile(r"(?<=[a-zA-Z])'(?=[a-zA-Z])")
# Stands for the apostrophe of a word while quotes are looked for; of the private use area.
_HELD: Final = "\ue000"


@dataclass(frozen=True, slots=True, eq=False)
class ReferringPrompt(EncodedPrompt):
    """A prompt with pictures to look at: normalised latents, each (1, channels, h, w)."""

    references: tuple[Tensor, ...] = ()


def encode(encoders: Encoders, conditioning: Conditioning) -> EncodedPrompt:
    """Encode one prompt as the pipelines do, padded to its full length; device thread.

    What the model is shown begins with the picture, if there is one, and has the padding in it.
    """
    pictures = conditioning.pictures
    with encoders.open() as encoder:
        words = tokens_of(encoder, conditioning.prompt)
        text = EDIT_PREFIX if pictures else PREFIX
        before = encoder.tokenizer(text, add_special_tokens=False).input_ids
        seen = encoder.tokenizer(SEEN * len(pictures), add_special_tokens=False).input_ids
        shown, inputs = with_pictures(encoder, [*before, *seen], pictures)
        suffix = encoder.tokenizer(SUFFIX, add_special_tokens=False).input_ids
        padding = max(MAX_TOKENS - len(words), 0)
        kept = [*words[:MAX_TOKENS], *[encoder.tokenizer.pad_token_id] * padding]
        mask = [True] * (len(shown) + MAX_TOKENS - padding)
        mask += [False] * padding + [True] * len(suffix)
        states = states_of_tokens(encoder, [*shown, *kept, *suffix], inputs, mask)
    features = states[len(before) : len(states) - len(suffix)]  # (tokens, width)
    return EncodedPrompt(features.clone(), max(len(words) - MAX_TOKENS, 0))


def tokens_of(encoder: TextEncoder, prompt: str) -> list[int]:
    """The tokens of a prompt: what stands in quotes is read character by character.

    As `split_quotation` of the pipelines; apostrophes within words are no quotes.
    """
    ids: list[int] = []
    held = _APOSTROPHE.sub(_HELD, prompt)
    start = 0
    for found in _QUOTED.finditer(held):
        ids += _read(encoder, held[start : found.start()])
        for character in found[0]:
            ids += _read(encoder, character)
        start = found.end()
    return ids + _read(encoder, held[start:])


def _read(encoder: TextEncoder, text: str) -> list[int]:
    plain = text.replace(_HELD, "'")
    return list(encoder.tokenizer(plain, add_special_tokens=False).input_ids) if plain else []


def with_references(prompt: EncodedPrompt, references: Sequence[Latent]) -> ReferringPrompt:
    """The prompt with pictures, normalised latents of one each; odd sides repeat their last row."""
    return ReferringPrompt(
        prompt.features,
        prompt.cut_tokens,
        notes=prompt.notes,
        references=tuple(_even(latent.samples) for latent in references),
    )


def _even(samples: Tensor) -> Tensor:
    height, width = samples.shape[-2:]
    if not height % 2 and not width % 2:
        return samples
    return functional.pad(samples, (0, width % 2, 0, height % 2), mode="replicate")
