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
from inline_core.families.wan.fun_jobs import CAMERA, CONTROL, SUBJECT, VACE, goes_blind

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
    `control_strength`; for Fun it is the latents (channels, t, h, w) of a video to go by.
    `subject` (channels, h, w) is the latent of a reference picture, `cameras` (frames, 16) is where
    the camera is (see `sampling.camera_paths`).
    """

    seen: Tensor | None = None
    frames: Tensor | None = None
    given: Tensor | None = None
    marks: Tensor | None = None
    control: Tensor | None = None
    control_strength: float = 1.0
    subject: Tensor | None = None
    cameras: Tensor | None = None

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
    if not encoders.sizes.get(_TOLD) or (not conditioning.pictures and goes_blind(encoders.sizes)):
        return WanPrompt(features, cut)
    if not conditioning.pictures:
        message = "this model makes videos from a picture: wire its first frame"
        raise InvalidParam(message, port="image")
    with encoders.open_vision() as vision:
        seen = vision.states(conditioning.pictures)  # (places, width)
    return WanPrompt(features, cut, seen=seen)


def with_references(prompt: WanPrompt, references: Sequence[Latent]) -> WanPrompt:
    """The prompt with what each latent is there for; without a purpose it is frames of the video.

    Raises: InvalidParam for what is no frames of one video.
    """
    told = {latent.purpose: latent.samples[0] for latent in references if latent.purpose}
    if VACE in told:
        strength = references[0].strength
        return replace(prompt, control=told[VACE], control_strength=strength)
    if CONTROL in told:
        prompt = replace(prompt, control=_whole(told[CONTROL], references[0].frames))
    if SUBJECT in told:
        prompt = replace(prompt, subject=told[SUBJECT][:, 0])
    if CAMERA in told:
        prompt = replace(prompt, cameras=told[CAMERA])
    frames = [latent for latent in references if not latent.purpose]
    return _with_frames(prompt, frames) if frames else prompt


def _whole(samples: Tensor, frames: int) -> Tensor:
    """Latents (channels, t, h, w) of a whole video, with zeros where it was too short."""
    missing = (frames - 1) // _TIME_FACTOR + 1 - samples.shape[1]
    return functional.pad(samples, (0, 0, 0, 0, 0, max(missing, 0)))  # (channels, t, h, w)


def _with_frames(prompt: WanPrompt, references: Sequence[Latent]) -> WanPrompt:
    """The prompt with the frames that are given: one latent of a whole video.

    Its mask (frames, 1, 1) is 0 for frames that are given, 255 for those to be made.
    Raises: InvalidParam for anything else.
    """
    latent = references[0]
    samples = latent.samples[0]  # (channels, t, h, w)
    if latent.strength != 1.0:
        message = "Wan holds given frames fully: leave their strength at 1"
        raise InvalidParam(message, port="positive")
    samples = _whole(samples, latent.frames)  # (channels, t, h, w)
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
