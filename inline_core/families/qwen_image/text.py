"""Prompts for Qwen-Image: a template, maybe pictures in it, and the last layer of Qwen2.5-VL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.qwen_image.pictures import ONE_PICTURE
from inline_core.families.text_encoders.qwen2_5_vl import states_of

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.sampling.values import Conditioning, Latent

MAX_TOKENS: Final = 1024
_SYSTEM: Final = "<|im_start|>system\n{}<|im_end|>\n<|im_start|>user\n"
PREFIX: Final = _SYSTEM.format(
    "Describe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:"
)
EDIT_PREFIX: Final = _SYSTEM.format(
    "Describe the key features of the input image (color, shape, size, texture, objects, "
    "background), then explain how the user's text instruction should alter or modify the image. "
    "Generate a new image that meets the user's requirements while maintaining consistency with "
    "the original input where appropriate."
)
SUFFIX: Final = "<|im_end|>\n<|im_start|>assistant\n"
PICTURE: Final = "<|vision_start|><|image_pad|><|vision_end|>"


@dataclass(frozen=True, slots=True, eq=False)
class ReferringPrompt(EncodedPrompt):
    """A prompt with pictures to look at: normalised latents, each (1, channels, 1, h, w)."""

    references: tuple[Tensor, ...] = ()


def encode(encoders: Encoders, conditioning: Conditioning) -> EncodedPrompt:
    """Encode one prompt as the pipelines of Qwen-Image, -Edit and -Edit-Plus do; device thread.

    Pictures come before the words; with several (or Edit-Plus) each has its number.
    """
    pictures = conditioning.pictures
    prefix = EDIT_PREFIX if pictures else PREFIX
    text = prefix + _shown(conditioning) + conditioning.prompt + SUFFIX
    with encoders.open() as encoder:
        before = len(encoder.tokenizer(prefix).input_ids)
        # Without pictures the whole text is cut, the end of the template too, as the pipeline does.
        most = None if pictures else MAX_TOKENS + before
        states, cut = states_of(encoder, text, pictures, most)  # (tokens, width)
    features = states[before:]
    cut += max(len(features) - MAX_TOKENS, 0)
    return EncodedPrompt(features[:MAX_TOKENS].clone(), cut)


def _shown(conditioning: Conditioning) -> str:
    """The places of the pictures in the text."""
    pictures = conditioning.pictures
    if len(pictures) == 1 and conditioning.option(ONE_PICTURE):
        return PICTURE
    return "".join(f"Picture {index}: {PICTURE}" for index in range(1, len(pictures) + 1))


def with_references(prompt: EncodedPrompt, references: Sequence[Latent]) -> ReferringPrompt:
    """The prompt with pictures, normalised latents of one each, in order."""
    return ReferringPrompt(
        prompt.features,
        prompt.cut_tokens,
        notes=prompt.notes,
        references=tuple(latent.samples for latent in references),
    )
