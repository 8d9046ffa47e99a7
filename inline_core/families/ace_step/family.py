"""What ACE-Step 1.5 is, without torch: its latent space, its schedule, its defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import Workload
from inline_core.errors import InvalidParam
from inline_core.families.published import folder, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules, Sizes
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor, SoundSpace
from inline_core.sampling.footprint import sound_workload
from inline_core.sampling.job import SampleJob
from inline_core.sampling.offer import Choice, Offer, Told
from inline_core.sampling.patches import ProjectGuidance
from inline_core.sampling.sigmas.tables import FlowTable

SPACE: Final = SoundSpace("ace-step", channels=64, factor=1, rate_hz=25.0)
CONDITION: Final = "ace-step-condition"
_SHIFT: Final = 3.0
_SAMPLES: Final = 1920  # for each latent frame
_PATCH: Final = 2
# A description, lyrics, and the timbre, at their longest.
_TEXT_TOKENS: Final = 2305
_ENCODER: Final = (1024, 28)  # width and layers of Qwen3 0.6B


def _encoders_fit(model: Sizes, encoders: Sequence[Sizes]) -> bool:
    """The condition encoder reads what the text encoder gives, and the model what it makes."""
    text, condition = encoders
    return text.get("hidden_size") == condition.get("text_hidden_dim") and condition.get(
        "timbre_hidden_dim"
    ) == model.get("audio_acoustic_hidden_dim")


# The repository of AceStepPipeline's example, and the text encoder that its releases name.
_REPO: Final = "ACE-Step/acestep-v15-xl-turbo-diffusers"
_TEXT_REPO: Final = "Qwen/Qwen3-Embedding-0.6B"
_TEXT_FILES: Final = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
_TEXT: Final = EncoderNeed("qwen3", size_of="")
_CONDITION: Final = EncoderNeed(CONDITION, size_of="encoder_hidden_size")


_REQUIREMENTS: Final = (
    weights(
        Role.DIFFUSION_MODEL,
        folder(_REPO, "transformer", "ace-step-xl-turbo"),
        8_340_000_000,
        of="XL Turbo",
    ),
    weights(Role.VAE, folder(_REPO, "vae", "ace-step-vae"), 312_000_000),
    weights(
        Role.TEXT_ENCODER,
        folder(_TEXT_REPO, "", "qwen3-embedding-0.6b", _TEXT_FILES),
        1_200_000_000,
        of="Qwen3 Embedding 0.6B",
        encoder=_TEXT,
    ),
    weights(
        Role.TEXT_ENCODER,
        folder(_REPO, "condition_encoder", "ace-step-condition"),
        1_220_000_000,
        of="condition",
        number=2,
        encoder=_CONDITION,
    ),
)
RULES: Final = FamilyRules(
    name="ace-step",
    label="ACE-Step 1.5",
    vae_family="autoencoder-oobleck",
    latent_channels=SPACE.channels,
    text_encoders=(_TEXT, _CONDITION),
    model_channels="audio_acoustic_hidden_dim",
    encoders_fit=_encoders_fit,
    defaults=MappingProxyType(
        {
            "turbo": {"seconds": 60.0, "steps": 8, "guidance": 1.0},
            "base": {"seconds": 60.0, "steps": 50, "guidance": 7.0},
        }
    ),
    requirements=_REQUIREMENTS,
)


def table(_: ScheduleFor) -> FlowTable:
    """Evenly spaced in time, with a shift of 3 (AceStepPipeline)."""
    return FlowTable(_SHIFT)


def check(job: SampleJob, _: Mapping[str, int]) -> None:
    """Raise InvalidParam for latents that are none of a sound."""
    latent = job.latent
    if (latent.width, latent.height) != (1, 1):
        message = (
            f"{RULES.label} makes sounds, and the latent is one of {latent.width}x{latent.height} "
            "pixels: wire an Empty Audio Latent"
        )
        raise InvalidParam(message, port="latent")


def workload(size: PassSize) -> Workload:
    """Two latent frames are a token; text is attended to, but not among them."""
    geometry = size.geometry
    tokens = -(-size.frames // _PATCH) * size.members
    return sound_workload(
        tokens=tokens,
        width=geometry["hidden_size"],
        ffn_width=geometry["intermediate_size"],
        text=(_TEXT_TOKENS, *_ENCODER),
        size=(size.frames, _SAMPLES),
        channels=size.decoder_channels,
    )


_CHOICES: Final = (
    Choice("lyrics", "", "Lyrics", multiline=True),
    Choice("bpm", 0, "Beats per minute (0 = free)", 0, 300, 1),
    Choice("key", "", "Key, such as C major (empty = free)"),
    Choice("time_signature", "auto", "Time signature", options=("auto", "2", "3", "4", "6")),
    Choice("language", "en", "Language of the lyrics", advanced=True),
)

ACE_STEP: Final = ModelFamily(
    rules=RULES,
    space=SPACE,
    table=table,
    size_multiple=1,
    runtime="inline_core.families.ace_step.components",
    workload=workload,
    modules=MappingProxyType(
        {(Role.TEXT_ENCODER, CONDITION): "inline_core.families.ace_step.condition"}
    ),
    check=check,
    prompts_by_length=True,
    offers=(
        Offer(
            "ace-step/ace-step-1-5",
            "ACE-Step 1.5 Music",
            output="audio",
            variants=("1.5",),
            told=(Told("turbo", "Turbo (8 steps)"), Told("base", "Base or SFT")),
            assumed="turbo",
            choices=_CHOICES,
            guided=(ProjectGuidance(),),
        ),
    ),
)
FAMILIES: Final = (ACE_STEP,)
