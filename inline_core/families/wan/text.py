"""Prompts for Wan: UMT5's features, and for some models what CLIP sees of a picture."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.nn import functional

from inline_core.errors import InvalidParam
from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.text_encoders.t5 import t5_tokens
from inline_core.families.wan.family import VACE_CHANNELS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.sampling.values import Conditioning, Latent

MAX_TOKENS: Final = 512
_TIME_FACTOR: Final = 4
# Sizes of models that are told of a picture through CLIP, too.
_TOLD: Final = "image_dim"


@dataclass(frozen=True, slots=True, eq=False)
class WanPrompt(EncodedPrompt):
    """A prompt, and what the model knows of frames that are given.

    `seen` (places, width) is what CLIP sees of them; `frames` (channels, t, h, w) are their
    latents, `given` (t, h, w) is 1 where a latent frame is given and `marks` (4, t, h, w) says so
    frame by frame.  `control` (96, t, h, w) is what VACE looks at, which counts with
    `control_strength`.
    """

    seen: Tensor | None = None
    frames: Tensor | None = None
    given: Tensor | None = None
    marks: Tensor | None = None
    control: Tensor | None = None
    control_strength: float = 1.0

    def _parts(self) -> list[Tensor]:
        return [self.features] if self.seen is None else [self.features, self.seen]


def encode(encoders: Encoders, conditioning: Conditioning) -> WanPrompt:
    """Encode one prompt as WanPipeline does, without its padding; device thread.

    Raises: InvalidParam if the model wants to be shown a picture and there is none.
    """
    prompt = " ".join(html.unescape(html.unescape(conditioning.prompt)).split())
    with encoders.open() as encoder:
        tokens, mask, cut = t5_tokens(encoder, prompt, MAX_TOKENS)
        # Every prompt of the real tokenizer has an end; one without any token is one of padding.
        words = tokens[:, : max(int(mask.sum()), 1)]  # (1, tokens)
        output = encoder.model(input_ids=words, attention_mask=torch.ones_like(words))
        features = output[0][0]  # (tokens, width)
    if not encoders.sizes.get(_TOLD):
        return WanPrompt(features, cut)
    if not conditioning.pictures:
        message = "this model makes videos from a picture: wire its first frame"
        raise InvalidParam(message, port="image")
    with encoders.open_vision() as vision:
        seen = vision.states(conditioning.pictures)  # (places, width)
    return WanPrompt(features, cut, seen=seen)


def with_references(prompt: WanPrompt, references: Sequence[Latent]) -> WanPrompt:
    """The prompt with the frames that are given: one latent of a whole video.

    Its mask (frames, 1, 1) is 0 for frames that are given, 255 for those to be made.
    Raises: InvalidParam for anything else.
    """
    latent = references[0]
    samples = latent.samples[0]  # (channels, t, h, w)
    if samples.shape[0] == VACE_CHANNELS and len(references) == 1:
        return replace(prompt, control=samples, control_strength=latent.strength)
    if latent.strength != 1.0:
        message = "Wan holds given frames fully: leave their strength at 1"
        raise InvalidParam(message, port="positive")
    missing = (latent.frames - 1) // _TIME_FACTOR + 1 - samples.shape[1]
    if missing > 0:
        samples = functional.pad(samples, (0, 0, 0, 0, 0, missing))
    mask = latent.mask
    if len(references) > 1 or mask is None or mask.shape[0] != latent.frames:
        message = "Wan looks at given frames of one video: use the Frames Conditioning node"
        raise InvalidParam(message, port="positive")
    marks = _marks(mask, samples)  # (4, t, h, w)
    return replace(prompt, frames=samples, marks=marks, given=marks.amax(0))


def _marks(mask: NDArray[np.uint8], samples: Tensor) -> Tensor:
    """1 for each frame that is given; four frames (the first one four times) in one latent frame.

    Source: `prepare_latents` of WanImageToVideoPipeline.
    """
    given = torch.from_numpy((mask.reshape(mask.shape[0], -1)[:, 0] == 0).astype(np.float32))
    times = torch.cat([given[:1].repeat(_TIME_FACTOR), given[1:]])  # (4 * t,)
    grid = times.view(-1, _TIME_FACTOR).T  # (4, t)
    height, width = samples.shape[-2:]
    return grid[:, :, None, None].expand(-1, -1, height, width).to(samples.device)


def padded_features(prompts: Sequence[Any]) -> Tensor:
    """Features (rows, 512, width): Wan has no mask, it knows zeros behind every prompt."""
    width = prompts[0].features.shape[-1]
    shape = (len(prompts), MAX_TOKENS, width)
    together: Tensor = prompts[0].features.new_zeros(shape)  # (rows, 512, width)
    for row, prompt in enumerate(prompts):
        together[row, : len(prompt.features)] = prompt.features
    return together
