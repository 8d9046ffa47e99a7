"""What LTX-2.5 is, without torch: LTX-2's latents, another text encoder, a decoder of its own."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from inline_core.families.ltx2 import family as ltx2
from inline_core.families.ltx2.family import CONNECTORS, FPS
from inline_core.families.published import folder, one_file, tokenizer, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily
from inline_core.sampling.offer import WITH_SOUND, Absent, Choice, Offer, Takes

# Latents of LTX-2, which another model decodes.
SPACE: Final = replace(ltx2.SPACE, name="ltx-2.5", alike=(ltx2.SPACE.name,))
DECODER: Final = "ltx-2.5"
# `DISTILLED_SIGMA_VALUES` of LTX-2's pipelines in diffusers; the last step goes down to 0.
DISTILLED: Final = (1.0, 0.99375, 0.9875, 0.98125, 0.975, 0.909375, 0.725, 0.421875, 0.0)
_CRF: Final = 18
_FRAMES: Final = 8
_SECONDS: Final = (1.0, 20.0)


# Diffusers names the first repository, the published files are in the second one.
_REPO: Final = "Lightricks/LTX-2.5-Diffusers"
_FILES: Final = "Lightricks/LTX-2.5"
_MODEL: Final = "ltx-2.5-22b-distilled-transformer-bf16.safetensors"
_TEXT: Final = EncoderNeed("gemma4", size_of="")
_CONNECTORS: Final = EncoderNeed(CONNECTORS, size_of="")
RULES: Final = FamilyRules(
    name="ltx-2.5",
    label="LTX-2.5",
    vae_family=ltx2.RULES.vae_family,
    latent_channels=SPACE.channels,
    vae_words=("ltx-2.5", "ltx-2-5", "ltx2.5", "ltx2_5", "ltx25"),
    text_encoders=(_TEXT, _CONNECTORS),
    encoders_fit=ltx2.encoders_fit,
    parts=MappingProxyType({**ltx2.RULES.parts, Role.VIDEO_DECODER: DECODER}),
    defaults=MappingProxyType(
        {"": {"width": 1920, "height": 1088, "frames": 121, "steps": 30, "guidance": 3.0}}
    ),
    requirements=(
        weights(Role.DIFFUSION_MODEL, one_file(_FILES, _MODEL), 42_000_000_000, of="LTX-2.5 22B"),
        weights(Role.VAE, folder(_REPO, "vae", "ltx-2.5-vae"), 1_400_000_000),
        weights(
            Role.VIDEO_DECODER,
            folder(_REPO, "diffusion_decoder", "ltx-2.5-video-decoder"),
            1_000_000_000,
        ),
        weights(Role.AUDIO_VAE, folder(_REPO, "audio_vae", "ltx-2.5-audio-vae"), 107_000_000),
        weights(Role.VOCODER, folder(_REPO, "vocoder", "ltx-2.5-vocoder"), 260_000_000),
        weights(
            Role.TEXT_ENCODER,
            folder(
                _REPO, "text_encoder", "gemma-4-12b-ltx-2.5", ("config.json", "model.safetensors")
            ),
            24_000_000_000,
            of="Gemma 4 12B",
            encoder=_TEXT,
        ),
        tokenizer(_REPO, "gemma-4-12b-ltx-2.5", 38_000_000, encoder=_TEXT, part="tokenizer"),
        weights(
            Role.TEXT_ENCODER,
            folder(_REPO, "connectors", "ltx-2.5-connectors"),
            6_300_000_000,
            of="connectors",
            number=2,
            encoder=_CONNECTORS,
        ),
    ),
)
_MODE: Final = Choice(
    "mode",
    "fast",
    "Mode",
    options=(
        ("fast", f"Fast (distilled, {len(DISTILLED) - 1} steps)"),
        ("quality", "Quality (dev, guided)"),
    ),
)
_SOUND: Final = Choice(WITH_SOUND, default=True, label="Generate audio")
_PARAMS: Final = (
    "duration",
    "width",
    "height",
    "mode",
    WITH_SOUND,
    "seed",
    "num_inference_steps",
    "guidance",
    "enhance_prompt",
    "model",
    "text_encoder",
    "vae",
    "upscaler",
)


def _offer(kind: str, title: str, *takes: Takes) -> Offer:
    return Offer(
        f"lightricks/ltx-2-5-{kind}",
        f"LTX-2.5 {title}",
        output="video+audio",
        takes=takes,
        size=(64, 1920),
        step=64,
        fps=FPS,
        duration=(1.04, *_SECONDS, 0.5),
        first_frame=functools.partial(ltx2.as_first_frame, crf=_CRF),
        between="nothing",
        keyframes="cut",
        choices=(_MODE, _SOUND),
        schedules=MappingProxyType({"fast": DISTILLED}),
        stated={"steps": 30, "guidance": 3.0},
        steps_key="num_inference_steps",
        absent=(
            Absent("reference", "Reference clip (Control LoRA)", kind="video"),
            Absent("enhance_prompt", "Expand the prompt"),
            Absent("upscaler", "Spatial upscaler", category="latent_upscale_models"),
        ),
        port_order=("image", "last_image", "reference"),
        param_order=_PARAMS,
        advanced=(
            "num_inference_steps",
            "guidance",
            "enhance_prompt",
            "upscaler",
            "negative_prompt",
        ),
        labels={
            "vae": "Video VAE",
            "duration": "Duration (seconds, 1 to 20)",
            "width": "Width (multiple of 64)",
            "height": "Height (multiple of 64)",
            "num_inference_steps": "Steps (quality mode)",
            "guidance": "Guidance (quality mode)",
            "negative_prompt": "Negative prompt (quality mode)",
            "scheduler": "Scheduler (quality mode)",
        },
    )


LTX_2_5: Final = ModelFamily(
    rules=RULES,
    space=SPACE,
    table=ltx2.table,
    size_multiple=ltx2.LTX_2.size_multiple,
    frame_multiple=_FRAMES,
    runtime=ltx2.LTX_2.runtime,
    workload=ltx2.workload,
    modules=MappingProxyType(
        {(Role.VIDEO_DECODER, DECODER): "inline_core.families.ltx25.video_decoder"}
    ),
    looks_at_references=True,
    holds_loosely=True,
    offers=(
        _offer("text-to-video", "Text to Video"),
        _offer("image-to-video", "Image to Video", "optional_frame"),
        _offer("first-last-frame", "First and Last Frame", "first_keyframe", "last_keyframe"),
    ),
)
FAMILIES: Final = (LTX_2_5,)
