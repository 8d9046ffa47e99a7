"""References to model components: what a `model`, `vae`, `text-encoder` or `lora` port carries.

A reference holds no weights, so caching it holds no memory; the pool turns it into a leased module.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Role(StrEnum):
    """What a weight file is for."""

    DIFFUSION_MODEL = "diffusion_model"
    VAE = "vae"
    AUDIO_VAE = "audio_vae"
    VOCODER = "vocoder"
    VIDEO_DECODER = "video_decoder"
    TEXT_ENCODER = "text_encoder"
    LORA = "lora"
    CONTROLNET = "controlnet"
    MODEL_PATCH = "model_patch"
    CHECKPOINT = "checkpoint"
    CLIP_VISION = "clip_vision"
    UPSCALER = "upscaler"
    LATENT_UPSCALER = "latent_upscaler"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LoraRef:
    """One adapter on a diffusion model; `strength` is -20..20, 0 means no effect.

    `strict` makes it an error when a part of the file fits nowhere, instead of a warning.
    """

    path: Path
    name: str
    stamp: str
    strength: float
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Patch:
    """How a model is sampled (guidance, schedule, step cache), never what its weights are."""


@dataclass(frozen=True, slots=True)
class ComponentRef:
    """One identified component in a file or folder.

    `name` is what the client picked (relative to the category folder); `stamp` changes when the
    content of the file may have changed (size, mtime and a hash of the header), so that equal
    references mean equal weights.  `family` is the architecture the content was identified as.
    `patches` apply in order, the later one winning over an earlier one of the same kind.
    `others` are further files of the same role that work together with this one: the second and
    third text encoder of a family, the other expert of a pair.  `part` is the prefix of the names
    that are meant in a file with several components ("": the whole file).
    """

    role: Role
    family: str
    variant: str
    name: str
    path: Path
    stamp: str
    adapters: tuple[LoraRef, ...] = ()
    patches: tuple[Patch, ...] = ()
    others: tuple[ComponentRef, ...] = ()
    part: str = ""

    @property
    def all(self) -> tuple[ComponentRef, ...]:
        """This one and the others that work together with it, in order."""
        return (self, *self.others)
