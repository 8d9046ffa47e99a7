"""Prompts for Qwen-Image 2.1: a template, maybe pictures in it, and Qwen3-VL's last layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import torch

from inline_core.errors import InvalidParam
from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.qwen_image_21.pictures import MULTIPLE
from inline_core.families.text_encoders.qwen3_vl_pictures import PAD, with_pictures

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.families.text_encoders.loaded import TextEncoder
    from inline_core.media.values import Image
    from inline_core.sampling.values import Conditioning, Latent

# Of QwenImage21Pipeline: what comes before the words, which the model is not shown.
PREFIX: Final = "<|im_start|>system\nComprehend and analyze the provided prompt.<|im_end|>\n"
USER: Final = "<|im_start|>user\n"
SUFFIX: Final = "<|im_end|>\n<|im_start|>assistant\n"
PICTURE: Final = f"<image{{}}><|vision_start|>{PAD}<|vision_end|>"
_RGBA: Final = 4
# Pictures come at the size they are looked at.
_PIXELS: Final = {"shortest_edge": MULTIPLE**2, "longest_edge": 1 << 30}
_TOKENS_OF_SLOT: Final = 4  # 2 x 2 latents for each place the text encoder has


@dataclass(frozen=True, slots=True, eq=False)
class Qwen21Prompt(EncodedPrompt):
    """`slots` (tokens,) bool is True where the text encoder saw a part of a picture.

    Their latents go there: `references`, normalised, each (1, channels, h, w), in order.
    """

    slots: Tensor | None = None
    references: tuple[Tensor, ...] = ()

    def joined(self, other: Self) -> Self:
        """The tokens of both one after another, and the pictures of both."""
        # Not super(): a dataclass with slots is another class than the one `super` knows.
        both = EncodedPrompt.joined(self, other)
        assert self.slots is not None
        assert other.slots is not None
        return replace(both, slots=torch.cat([self.slots, other.slots]))  # (tokens of both,)


def encode(encoders: Encoders, conditioning: Conditioning) -> Qwen21Prompt:
    """Encode one prompt as QwenImage21Pipeline does; device thread.

    Raises: InvalidParam for a picture whose sides are no multiples of 32.
    """
    pictures = conditioning.pictures
    _check_sizes(pictures)
    shown = " ".join(PICTURE.format(number) for number in range(1, len(pictures) + 1))
    # Qwen has no token for the start, so nothing at all cannot be read.
    text = f"{PREFIX}{USER}{shown}{conditioning.prompt or ' '}{SUFFIX}"
    with encoders.open() as encoder:
        before = len(encoder.tokenizer(PREFIX).input_ids)
        states, slots = _states_of(encoder, text, pictures)
    return Qwen21Prompt(states[before:].clone(), slots=slots[before:])


def _check_sizes(pictures: Sequence[Image]) -> None:
    for image in pictures:
        if image.width % MULTIPLE or image.height % MULTIPLE:
            message = (
                f"Qwen-Image 2.1 looks at pictures whose sides are multiples of {MULTIPLE}, not at "
                f"{image.width} x {image.height}: resize it first"
            )
            raise InvalidParam(message, port="images")


def _states_of(encoder: TextEncoder, text: str, pictures: Sequence[Image]) -> tuple[Tensor, Tensor]:
    """States (tokens, width) of the last layer before its norm, and which are of pictures."""
    shown = [_over_white(image.pixels) for image in pictures]
    ids, inputs = with_pictures(encoder, encoder.tokenizer(text).input_ids, shown, _PIXELS)
    tokens = torch.tensor([ids], device=encoder.device)  # (1, tokens)
    slots = tokens == encoder.model.config.image_token_id  # (1, tokens)
    if pictures:
        inputs["mm_token_type_ids"] = slots.int()
    # The transformer was trained on what comes before the norm.
    norm = encoder.model.language_model.norm
    handle = norm.register_forward_hook(lambda _module, given, _output: given[0])
    try:
        output = encoder.model(
            input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False, **inputs
        )
    finally:
        handle.remove()
    # What is kept from an earlier picture would shift the next prompt.
    encoder.model.rope_deltas = None
    return output.last_hidden_state[0], slots[0] if pictures else torch.zeros_like(slots[0])


def _over_white(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(H, W, 3) of a picture with alpha as the text encoder was trained: over white."""
    from PIL import Image as PillowImage

    if pixels.shape[2] < _RGBA:
        return pixels
    picture = PillowImage.fromarray(pixels)
    white = PillowImage.new("RGB", picture.size, (255, 255, 255))
    white.paste(picture, mask=picture.getchannel("A"))
    return np.asarray(white)


def with_references(prompt: Qwen21Prompt, references: Sequence[Latent]) -> Qwen21Prompt:
    """The prompt with the latents of the pictures its text encoder saw, in order.

    A prompt without pictures has none (an empty negative prompt).
    Raises: InvalidParam where they are not those pictures.
    """
    assert prompt.slots is not None
    seen = int(prompt.slots.sum()) * _TOKENS_OF_SLOT
    latents = tuple(latent.samples for latent in references)  # each (1, channels, h, w)
    if not seen:
        return prompt
    if seen != sum(item.shape[-2] * item.shape[-1] for item in latents):
        message = (
            "Qwen-Image 2.1 needs the same pictures, in the same sizes, for its text encoder and "
            "as references"
        )
        raise InvalidParam(message, port="positive")
    return replace(prompt, references=latents)
