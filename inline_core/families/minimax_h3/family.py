"""What MiniMax H3 is, without torch: its latents of video and sound, its schedules, defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from inline_core.devices.budget import Workload
from inline_core.errors import InvalidParam
from inline_core.families.minimax_h3.pictures import as_reference
from inline_core.families.published import folder, tokenizer, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor, SoundtrackSpace
from inline_core.sampling.footprint import video_workload
from inline_core.sampling.job import SampleJob
from inline_core.sampling.offer import Absent, Choice, Offer, Takes
from inline_core.sampling.sigmas.tables import FlowTable, size_for

FPS: Final = 24.0
# Of the published schedulers: the shift of the video's sigmas, and that of the sound's.
SHIFT: Final = 12.0
SOUND_SHIFT: Final = 3.0
STEREO: Final = 2
# 17 frames become 5 latent frames; the last 5 frames of a video, two.
CHUNK: Final = 17
REST: Final = 5
_LATENTS: Final = 5
_LAST_LATENTS: Final = 2
_SECONDS: Final = (5.0, 15.0)
_PATCH: Final = 2
_TEXT_TOKENS: Final = 1024
_ENCODER: Final = (5120, 64)  # width and layers of Qwen3-VL 32B


@dataclass(frozen=True, slots=True)
class H3Space(SoundtrackSpace):
    """Latents of 17 n + 5 frames: 5 n + 2 of them.

    Those of the sound are both channels of a stereo sound one after the other, and four times as
    large as the model has them (`SHIFT` / `SOUND_SHIFT`): see `denoise`.
    """

    def video_shape(self, width: int, height: int, frames: int) -> tuple[int, ...]:
        """(channels, t, h, w) of the video."""
        count = (frames - REST) // CHUNK * _LATENTS + _LAST_LATENTS
        return (self.channels, count, height // self.factor, width // self.factor)


SPACE: Final = H3Space(
    "minimax-h3",
    channels=24,
    factor=16,
    frame_factor=4,
    sound_channels=32 * STEREO,
    sound_rate_hz=40.0,
    fps=FPS,
)


def table(wanted: ScheduleFor) -> FlowTable:
    """The sigmas of the video (MiniMaxH3Scheduler), which those of the sound follow."""
    return FlowTable(SHIFT, size=size_for(wanted.steps))


def workload(size: PassSize) -> Workload:
    """Text, sound and video are one sequence; the video has patches of 1 x 2 x 2 latents."""
    _, frames, height, width = SPACE.video_shape(size.width, size.height, max(size.frames, REST))
    tokens = frames * (height // _PATCH) * (width // _PATCH)
    tokens += STEREO * SPACE.sound_frames_of(size.frames, FPS) + _TEXT_TOKENS
    geometry = size.geometry
    return video_workload(
        tokens=tokens * size.members,
        width=geometry["num_attention_heads"] * geometry["attention_head_dim"],
        ffn_width=geometry["ffn_dim"],
        text=(_TEXT_TOKENS, *_ENCODER),
        size=(size.width, size.height, size.frames),
        channels=size.decoder_channels,
    )


def check(job: SampleJob, _: Mapping[str, int]) -> None:
    """Raise InvalidParam for what the model was not made for."""
    latent = job.latent
    fps = latent.fps or FPS
    seconds = latent.frames / fps
    low, high = _SECONDS
    if fps != FPS or not low <= seconds <= high:
        message = (
            f"{RULES.label} makes {low:g} to {high:g} seconds at {FPS:g} frames a second, not "
            f"{seconds:.2f} at {fps:g}"
        )
        raise InvalidParam(message, param="fps" if fps != FPS else "frames")
    if job.cfg > 1:
        message = f"{RULES.label} has its guidance inside: set cfg to 1"
        raise InvalidParam(message, param="cfg")


_REPO: Final = "MiniMaxAI/MiniMax-H3"
_TEXT: Final = EncoderNeed("qwen3-vl", size_of="text_dim")
_SHARDS: Final = 14
_TEXT_FILES: Final = (
    "config.json",
    *(f"model-{index + 1:05}-of-{_SHARDS:05}.safetensors" for index in range(_SHARDS)),
    "model.safetensors.index.json",
)
_MODEL_SHARDS: Final = 10
_MODEL_FILES: Final = (
    "config.json",
    *(
        f"diffusion_pytorch_model-{index + 1:05}-of-{_MODEL_SHARDS:05}.safetensors"
        for index in range(_MODEL_SHARDS)
    ),
    "diffusion_pytorch_model.safetensors.index.json",
)
RULES: Final = FamilyRules(
    name="minimax-h3",
    label="MiniMax H3",
    vae_family="autoencoder-kl-minimax-h3",
    latent_channels=SPACE.channels,
    text_encoders=(_TEXT,),
    parts=MappingProxyType({Role.AUDIO_VAE: "autoencoder-kl-minimax-h3-audio"}),
    defaults=MappingProxyType(
        {"": {"width": 1344, "height": 768, "frames": 124, "steps": 50, "guidance": 1.0}}
    ),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            folder(_REPO, "transformer", "minimax-h3", _MODEL_FILES),
            94_000_000_000,
        ),
        weights(Role.VAE, folder(_REPO, "vae", "minimax-h3-vae"), 3_000_000_000),
        weights(Role.AUDIO_VAE, folder(_REPO, "audio_vae", "minimax-h3-audio-vae"), 900_000_000),
        weights(
            Role.TEXT_ENCODER,
            folder(_REPO, "text_encoder", "qwen3-vl-32b", _TEXT_FILES),
            66_700_000_000,
            of="Qwen3-VL 32B",
            encoder=_TEXT,
        ),
        tokenizer(_REPO, "qwen3-vl-32b", 16_000_000, encoder=_TEXT, part="tokenizer"),
    ),
)
_CHARACTER: Final = Absent("character", "Character", kind="character")
_SIDES: Final = "multiples of 32; 960x544 renders about 2.3x faster per step than 1344x768"


_LABELS: Final = MappingProxyType(
    {
        "vae": "Video VAE",
        "references": "References",
        "duration": "Duration (seconds, 5 to 15)",
        "width": f"Width ({_SIDES})",
        "height": f"Height ({_SIDES})",
    }
)


def _offer(kind: str, title: str, *takes: Takes, **more: Any) -> Offer:
    return Offer(
        f"minimax/h3-{kind}",
        f"MiniMax H3 {title}",
        output="video+audio",
        takes=takes,
        guidance="none",
        negative=False,
        size=(32, 1344),
        step=32,
        fps=FPS,
        duration=(5.17, *_SECONDS, 0.5),
        stated={"steps": 50},
        steps_key="num_inference_steps",
        counts_last=True,
        labels=_LABELS,
        **{"absent": (_CHARACTER,), **more},
    )


_OF_CHARACTERS: Final = (
    Choice("character_references", 9, "Character references", 1, 9, 1),
    Choice(
        "character_reference_roles",
        "all",
        "Character reference roles",
        options=(("all", "Face, body and clothing"), ("face", "Face only")),
    ),
    Choice(
        "character_role_lines", default=False, label="Name character reference roles in the prompt"
    ),
)
_PARAMS: Final = (
    "duration",
    "width",
    "height",
    "num_inference_steps",
    "seed",
    *(choice.key for choice in _OF_CHARACTERS),
    "model",
    "text_encoder",
    "vae",
)
_REFERENCE_TO_VIDEO: Final = _offer(
    "reference-to-video",
    "Reference to Video",
    "references",
    sized_by_reference=False,
    references=9,
    references_port="references",
    reference=as_reference,
    picture=as_reference,
    port_order=("character", "references", "video", "audio"),
    absent=(
        _CHARACTER,
        Absent("video", "Reference video", kind="video"),
        Absent("audio", "Reference audio", kind="audio"),
    ),
    idle=_OF_CHARACTERS,
    param_order=_PARAMS,
)


MINIMAX_H3: Final = ModelFamily(
    rules=RULES,
    space=SPACE,
    table=table,
    size_multiple=32,
    frame_multiple=CHUNK,
    frame_first=REST,
    runtime="inline_core.families.minimax_h3.components",
    workload=workload,
    modules=MappingProxyType(
        {
            (Role.VAE, "autoencoder-kl-minimax-h3"): "inline_core.families.minimax_h3.video_vae",
            (Role.AUDIO_VAE, "autoencoder-kl-minimax-h3-audio"): (
                "inline_core.families.minimax_h3.sound"
            ),
        }
    ),
    readers=MappingProxyType({"qwen3-vl": "inline_core.families.text_encoders.qwen3_vl_pictures"}),
    check=check,
    looks_at_references=True,
    reads_pictures=True,
    offers=(
        _offer("text-to-video", "Text to Video"),
        _offer("image-to-video", "Image to Video", "first_keyframe"),
        _offer("first-last-frame", "First and Last Frame", "first_keyframe", "last_keyframe"),
        _REFERENCE_TO_VIDEO,
    ),
)
FAMILIES: Final = (MINIMAX_H3,)
