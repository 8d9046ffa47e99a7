"""What the Wan models are, without torch: latent spaces, schedules, defaults of their variants."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from inline_core.devices.budget import Workload
from inline_core.devices.split import SplitTraits
from inline_core.errors import InvalidParam
from inline_core.families.autoencoders.wan_spaces import WAN_21, WAN_22
from inline_core.families.published import split_file, tokenizer, weights
from inline_core.families.wan.fun_jobs import KINDS, VACE, check_fun, check_others
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules, Requirement
from inline_core.sampling.family import LatentSpace, ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import video_workload
from inline_core.sampling.job import SampleJob
from inline_core.sampling.offer import Offer
from inline_core.sampling.sigmas.tables import FlowTable

_REPO_21: Final = "Comfy-Org/Wan_2.1_ComfyUI_repackaged"
_REPO_22: Final = "Comfy-Org/Wan_2.2_ComfyUI_Repackaged"
# Models with parts that none of these nodes feed.
_OTHERS: Final = ("animate", "s2v", "humo")


def _defaults(size: tuple[int, int], frames: int, steps: int, guidance: float) -> Mapping[str, Any]:
    width, height = size
    return MappingProxyType(
        {
            "width": width,
            "height": height,
            "frames": frames,
            "steps": steps,
            "guidance": guidance,
        }
    )


_SMALL: Final = _defaults((832, 480), 81, 50, 5.0)
_LARGE: Final = _defaults((1280, 720), 81, 50, 5.0)
_PAIR: Final = _defaults((1280, 720), 81, 40, 3.5)


def _requirements(
    model: tuple[str, str, int], vae: tuple[str, str, int]
) -> tuple[Requirement, ...]:
    """Repository, file and bytes of both; the text encoder is the same for all."""
    role, encoder = Role.TEXT_ENCODER, "umt5_xxl_fp8_e4m3fn_scaled"
    return (
        weights(Role.DIFFUSION_MODEL, split_file(Role.DIFFUSION_MODEL, *model[:2]), model[2]),
        weights(Role.VAE, split_file(Role.VAE, *vae[:2]), vae[2]),
        weights(role, split_file(role, _REPO_21, f"{encoder}.safetensors"), 6_740_000_000),
        tokenizer("google/umt5-xxl", encoder, 16_800_000),
    )


_ENCODERS: Final = (EncoderNeed("umt5", size_of="text_dim"),)
RULES: Final = FamilyRules(
    name="wan",
    label="Wan",
    vae_family="autoencoder-kl-wan",
    latent_channels=WAN_21.channels,
    text_encoders=_ENCODERS,
    model_channels="",
    parts=MappingProxyType({Role.CLIP_VISION: "clip-vision"}),
    defaults=MappingProxyType(
        {
            "t2v-1.3b": _SMALL,
            "t2v-14b": _LARGE,
            "i2v-14b": _LARGE,
            "2.2-i2v-14b": _PAIR,
        }
    ),
    requirements=_requirements(
        (_REPO_21, "wan2.1_t2v_1.3B_fp16.safetensors", 2_840_000_000),
        (_REPO_21, "wan_2.1_vae.safetensors", 254_000_000),
    ),
)
RULES_5B: Final = FamilyRules(
    name="wan-5b",
    label="Wan 2.2 5B",
    vae_family="autoencoder-kl-wan",
    latent_channels=WAN_22.channels,
    text_encoders=_ENCODERS,
    model_channels="",
    defaults=MappingProxyType({"2.2-ti2v-5b": _defaults((1280, 704), 121, 50, 5.0)}),
    requirements=_requirements(
        (_REPO_22, "wan2.2_ti2v_5B_fp16.safetensors", 10_000_000_000),
        (_REPO_22, "wan2.2_vae.safetensors", 1_410_000_000),
    ),
)

_TEXT_TOKENS: Final = 512
_ENCODER_LAYERS: Final = 24  # of UMT5 XXL
# Of the published schedulers: 3 for 480 lines, 5 above.
_SHIFTS: Final = (3.0, 5.0)
_MANY_PIXELS: Final = 832 * 480 * 3 // 2
_MULTIPLIER: Final = 1000.0


def table(wanted: ScheduleFor) -> FlowTable:
    """Wan's sigmas: a larger shift for larger videos, as its authors advise."""
    large = wanted.width * wanted.height > _MANY_PIXELS
    return FlowTable(_SHIFTS[large], _MULTIPLIER)


def _workload(space: LatentSpace, size: PassSize) -> Workload:
    """Tokens are patches of 1 x 2 x 2 latents; the text is looked at, not a part of them."""
    _, frames, height, width = space.shape(size.width, size.height, size.frames)
    geometry = size.geometry
    if geometry.get("ref_channels"):
        frames += 1  # of a reference picture
    return video_workload(
        tokens=frames * (height // 2) * (width // 2) * size.members,
        width=geometry["num_attention_heads"] * geometry["attention_head_dim"],
        ffn_width=geometry["ffn_dim"],
        text=(_TEXT_TOKENS, geometry["text_dim"], _ENCODER_LAYERS),
        size=(size.width, size.height, size.frames),
        channels=size.decoder_channels,
    )


def check(job: SampleJob, geometry: Mapping[str, int]) -> None:
    """Raise InvalidParam for models that need what no node gives, and for missing frames."""
    kind = job.model.variant.split("-")[0]
    if kind in _OTHERS:
        message = f"{job.model.name} is Wan {kind}, which cannot be run here yet"
        raise InvalidParam(message, param="model")
    if kind in KINDS:
        check_fun(job, geometry)
        return
    if kind == VACE:
        _check_vace(job)
        return
    check_others(job)
    needs_frames = geometry["in_channels"] > geometry["out_channels"]
    shown = bool(job.positive.references)
    if needs_frames and not shown:
        message = f"{job.model.name} makes videos from a picture: wire its first frame"
        raise InvalidParam(message, port="image")
    if shown and not needs_frames and job.model.family != RULES_5B.name:
        message = f"{job.model.name} makes videos from text alone: unwire the first frame"
        raise InvalidParam(message, port="image")


def _check_vace(job: SampleJob) -> None:
    """Raise InvalidParam unless a VACE model is shown what it shall go by, in the video's size."""
    latent, shown = job.latent, job.positive.references
    if [one.purpose for one in shown] != [VACE]:
        message = (
            f"{job.model.name} is Wan VACE: wire its video, mask or picture through VACE "
            "Conditioning"
        )
        raise InvalidParam(message, port="positive")
    same = ("width", "height", "frames")
    if any(getattr(shown[0], name) != getattr(latent, name) for name in same):
        message = (
            f"VACE Conditioning is for {shown[0].width}x{shown[0].height}, {shown[0].frames} frames"
            f", and the latent has {latent.width}x{latent.height}, {latent.frames}: wire its latent"
        )
        raise InvalidParam(message, port="latent")


_FIRST: Final = ("first_frame",)
_BOTH: Final = ("first_frame", "last_frame")
_FRAMES: Final = {"output": "video", "fps": 16.0, "fps_free": True, "experts": True}


def _offer(name: str, title: str, **more: Any) -> Offer:
    return Offer(f"wan-ai/wan-{name}", title, size=(64, 4096), **{**_FRAMES, **more})


_SPLITS: Final = SplitTraits(
    xdit=frozenset({"ulysses", "ring", "cfg"}), diffusers=frozenset({"ulysses", "ring"})
)
WAN: Final = ModelFamily(
    rules=RULES,
    space=WAN_21,
    table=table,
    size_multiple=16,
    frame_multiple=4,
    runtime="inline_core.families.wan.components",
    workload=lambda size: _workload(WAN_21, size),
    looks_at_references=True,
    holds_loosely=True,
    check=check,
    splits=_SPLITS,
    offers=(
        _offer("text-to-video", "Wan Text to Video", variants=("t2v-14b", "t2v-1.3b", "t2v")),
        _offer(
            "image-to-video",
            "Wan Image to Video",
            takes=_FIRST,
            variants=("2.2-i2v-14b", "i2v-14b", "i2v", "2.2-i2v"),
            boundary=0.9,
        ),
        _offer(
            "first-last-frame",
            "Wan First and Last Frame",
            takes=_BOTH,
            variants=("2.2-i2v-14b", "i2v-14b", "i2v", "2.2-i2v"),
            boundary=0.9,
        ),
    ),
)
WAN_5B: Final = ModelFamily(
    rules=RULES_5B,
    space=WAN_22,
    table=lambda _: FlowTable(_SHIFTS[1], _MULTIPLIER),
    size_multiple=32,
    frame_multiple=4,
    runtime="inline_core.families.wan.components",
    workload=lambda size: _workload(WAN_22, size),
    looks_at_references=True,
    check=check,
    splits=_SPLITS,
    offers=(
        _offer(
            "2-2-5b",
            "Wan 2.2 5B",
            takes=("optional_frame",),
            variants=("2.2-ti2v-5b", "2.2-ti2v"),
            between="nothing",
            fps=24.0,
            experts=False,
        ),
    ),
)
FAMILIES: Final = (WAN, WAN_5B)
