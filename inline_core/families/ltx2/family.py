"""What LTX-2 is, without torch: its latents of video and sound, its schedule, its defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from inline_core.devices.budget import Workload
from inline_core.families.published import folder, tokenizer, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules, Sizes
from inline_core.media.values import Image
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor, SoundtrackSpace
from inline_core.sampling.footprint import video_workload
from inline_core.sampling.offer import WITH_SOUND, Choice, Offer
from inline_core.sampling.sigmas.tables import FlowTable, mu_of_tokens, size_for, terminal_stretch

CONNECTORS: Final = "ltx-2-connectors"
FPS: Final = 24.0
# 25 latent frames of sound a second (16 kHz, hops of 160, 4 of them each), 8 channels of 16 bins.
SPACE: Final = SoundtrackSpace(
    "ltx-2",
    channels=128,
    factor=32,
    frame_factor=8,
    sound_channels=128,
    sound_rate_hz=25.0,
    fps=FPS,
)
MEL_BINS: Final = 16
MAX_TOKENS: Final = 1024
_ENCODER: Final = (3840, 48)  # width and layers of Gemma 3 12B
# Of the published scheduler: mu on a line through (tokens, mu), and the last sigma of a schedule.
_FEW: Final = (1024, 0.95)
_MANY: Final = (4096, 2.05)
_TERMINAL: Final = 0.1
_FFN: Final = 4
_CRF: Final = 33


def table(wanted: ScheduleFor) -> FlowTable:
    """LTX-2's sigmas: the shift grows with the video, and the last step starts at 0.1."""
    _, frames, height, width = SPACE.video_shape(wanted.width, wanted.height, wanted.frames)
    tokens = (frames + wanted.keyframes) * height * width
    shift = math.exp(mu_of_tokens(tokens, _FEW, _MANY))
    size = size_for(wanted.steps)
    return FlowTable(shift, size=size, stretch=terminal_stretch(shift, wanted.steps, _TERMINAL))


def workload(size: PassSize) -> Workload:
    """A latent of the video is a token; sound adds one for each of its latent frames."""
    _, frames, height, width = SPACE.video_shape(size.width, size.height, size.frames)
    tokens = frames * height * width + SPACE.sound_frames_of(size.frames, FPS)
    geometry = size.geometry
    wide = geometry["num_attention_heads"] * geometry["attention_head_dim"]
    return video_workload(
        tokens=tokens * size.members,
        width=wide,
        ffn_width=_FFN * wide,
        text=(MAX_TOKENS, *_ENCODER),
        size=(size.width, size.height, size.frames),
        channels=size.decoder_channels,
    )


def as_first_frame(image: Image, crf: int = _CRF) -> Image:
    """A picture as LTX-2 is shown it: a frame of a compressed video, as in its training."""
    # Families are known without the libraries of the runtime.
    from inline_core.media.recompress import recompressed

    return Image(recompressed(image.pixels[:, :, :3], crf), image.provenance)


def encoders_fit(model: Sizes, encoders: Sequence[Sizes]) -> bool:
    """The connectors give what the model takes: its captions, or both widths of its own."""
    connectors = encoders[1]
    wanted = model.get("caption_channels") or model.get("cross_attention_dim")
    return connectors.get("hidden_size") == wanted


# The repository of LTX2Pipeline's example.
_REPO: Final = "Lightricks/LTX-2"
_TEXT: Final = EncoderNeed("gemma3", size_of="")
_CONNECTORS: Final = EncoderNeed(CONNECTORS, size_of="")
_SHARDS: Final = 8
_TEXT_FILES: Final = (
    "config.json",
    *(f"model-{index + 1:05}-of-{_SHARDS:05}.safetensors" for index in range(_SHARDS)),
    "model.safetensors.index.json",
)
_VARIANTS: Final[Mapping[str, Any]] = {
    "width": 768,
    "height": 512,
    "frames": 121,
    "steps": 40,
    "guidance": 4.0,
}
RULES: Final = FamilyRules(
    name="ltx-2",
    label="LTX-2",
    vae_family="autoencoder-kl-ltx-2-video",
    latent_channels=SPACE.channels,
    vae_words=("ltx-2", "ltx2"),
    text_encoders=(_TEXT, _CONNECTORS),
    encoders_fit=encoders_fit,
    parts=MappingProxyType({Role.AUDIO_VAE: "autoencoder-kl-ltx-2-audio", Role.VOCODER: "ltx-2"}),
    defaults=MappingProxyType({"2.0": _VARIANTS, "2.3": _VARIANTS}),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            folder(_REPO, "transformer", "ltx-2"),
            37_800_000_000,
            of="LTX-2 19B",
        ),
        weights(Role.VAE, folder(_REPO, "vae", "ltx-2-vae"), 2_450_000_000),
        weights(Role.AUDIO_VAE, folder(_REPO, "audio_vae", "ltx-2-audio-vae"), 107_000_000),
        weights(Role.VOCODER, folder(_REPO, "vocoder", "ltx-2-vocoder"), 112_000_000),
        weights(
            Role.TEXT_ENCODER,
            folder(_REPO, "text_encoder", "gemma-3-12b-ltx-2", _TEXT_FILES),
            24_400_000_000,
            of="Gemma 3 12B",
            encoder=_TEXT,
        ),
        tokenizer(_REPO, "gemma-3-12b-ltx-2", 38_000_000, encoder=_TEXT, part="tokenizer"),
        weights(
            Role.TEXT_ENCODER,
            folder(_REPO, "connectors", "ltx-2-connectors"),
            2_860_000_000,
            of="connectors",
            number=2,
            encoder=_CONNECTORS,
        ),
    ),
)
_SOUND: Final = Choice(WITH_SOUND, default=True, label="With sound")
LTX_2: Final = ModelFamily(
    rules=RULES,
    space=SPACE,
    table=table,
    size_multiple=32,
    frame_multiple=8,
    runtime="inline_core.families.ltx2.components",
    workload=workload,
    modules=MappingProxyType(
        {
            (Role.TEXT_ENCODER, CONNECTORS): "inline_core.families.ltx2.connectors",
            (Role.VAE, "autoencoder-kl-ltx-2-video"): "inline_core.families.ltx2.video_vae",
            (Role.AUDIO_VAE, "autoencoder-kl-ltx-2-audio"): "inline_core.families.ltx2.sound",
            (Role.VOCODER, "ltx-2"): "inline_core.families.ltx2.sound",
        }
    ),
    looks_at_references=True,
    holds_loosely=True,
    offers=(
        Offer(
            "lightricks/ltx-2-text-to-video",
            "LTX-2 Text to Video",
            output="video+audio",
            fps=FPS,
            fps_free=True,
            choices=(_SOUND,),
        ),
        Offer(
            "lightricks/ltx-2-image-to-video",
            "LTX-2 Image to Video",
            output="video+audio",
            takes=("optional_frame",),
            between="nothing",
            first_frame=as_first_frame,
            fps=FPS,
            fps_free=True,
            choices=(_SOUND,),
        ),
    ),
)
FAMILIES: Final = (LTX_2,)
