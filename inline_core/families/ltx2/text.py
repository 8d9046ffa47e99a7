"""Prompts for LTX-2: all layers of Gemma 3, through a connector each for video and sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch

from inline_core.errors import InvalidParam
from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.ltx2.family import MAX_TOKENS, SPACE
from inline_core.families.text_encoders.loaded import tokens_of

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.sampling.values import Conditioning, Latent


@dataclass(frozen=True, slots=True, eq=False)
class LTX2Prompt(EncodedPrompt):
    """`features` (tokens, width) for the video, `sound` (tokens, width) for the sound.

    `latent` tells the sizes of what is made (without samples); `frames` (channels, t, h, w) are
    latents that are given, and `given` (t,) is 1 where they are; `last` (channels, 1, h, w) is a
    picture that the video ends with, beside it.
    """

    WORDS: ClassVar[tuple[str, ...]] = ("features", "sound")

    sound: Tensor | None = None
    latent: Latent | None = None
    frames: Tensor | None = None
    given: Tensor | None = None
    last: Tensor | None = None
    last_strength: float = 1.0

    def _parts(self) -> list[Tensor]:
        return [self.features] if self.sound is None else [self.features, self.sound]


def encode(encoders: Encoders, conditioning: Conditioning) -> LTX2Prompt:
    """Encode one prompt as LTX2Pipeline does; device thread.

    The connectors fill up with learnt registers to as many tokens as the pipeline pads to, so that
    padding never is attended to.
    """
    with encoders.open(0) as encoder:
        tokens, cut = tokens_of(encoder, conditioning.prompt.strip(), MAX_TOKENS)  # (1, tokens)
        output = encoder.model(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            output_hidden_states=True,
            use_cache=False,
        )
        states = torch.stack(output.hidden_states, dim=-1).flatten(2)  # (1, tokens, all)
    with encoders.open(1) as encoder:
        model = encoder.model
        padding = MAX_TOKENS - states.shape[1]
        states = states.to(encoder.device, model.dtype)
        padded = torch.nn.functional.pad(states, (0, 0, padding, 0))  # (1, 1024, all)
        mask = torch.ones(1, MAX_TOKENS, dtype=torch.long, device=encoder.device)  # (1, 1024)
        mask[:, :padding] = 0
        video, sound, _ = model(padded, mask, padding_side="left")  # 2 x (1, 1024, width)
    return LTX2Prompt(video[0], cut, sound=sound[0])


def laid_out(prompt: LTX2Prompt, latent: Latent) -> LTX2Prompt:
    """The prompt with the sizes of what is made."""
    return replace(prompt, latent=replace(latent, samples=None))


def with_references(prompt: LTX2Prompt, references: Sequence[Latent]) -> LTX2Prompt:
    """The prompt with the frames that are given: a first one, a last one, or both.

    Each is a latent of one picture whose mask (frames, 1, 1) is 0 for its frame and 255 for those
    to be made.  The last one is no part of the video: the model looks at it (`last`).
    Raises: InvalidParam for anything else.
    """
    first, last = (_given(references, place) for place in (0, -1))
    if len(references) != (first is not None) + (last is not None):
        message = (
            "LTX-2 looks at a first frame, LTX-2.5 at a last one too: use the Keyframes "
            "Conditioning node, or Frames Conditioning with nothing as the rest"
        )
        raise InvalidParam(message, port="positive")
    prompt = replace(prompt, last=last, last_strength=references[0].strength)
    if first is None:
        return prompt
    latent = references[0]
    count = SPACE.video_shape(latent.width, latent.height, latent.frames)[1]
    frames = first.expand(-1, count, -1, -1)  # (channels, t, h, w)
    given = torch.zeros(count, device=first.device)  # (t,)
    given[0] = latent.strength
    return replace(prompt, frames=frames, given=given)


def _given(references: Sequence[Latent], place: int) -> Tensor | None:
    """The picture (channels, 1, h, w) that stands for the first or the last frame alone."""
    for latent in references:
        mask = latent.mask
        if mask is None or mask.shape[0] != latent.frames or latent.samples.shape[2] != 1:
            continue
        kept = [index for index in range(latent.frames) if not mask[index].any()]
        if kept == [range(latent.frames)[place]]:
            found: Tensor = latent.samples[0]
            return found
    return None
