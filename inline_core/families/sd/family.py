"""What Stable Diffusion 1.5 and XL are, without torch: latent spaces, schedule, defaults, nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from inline_core.devices.budget import Workload
from inline_core.errors import InvalidParam
from inline_core.families.autoencoders.kl_spaces import SD15 as SD15_SPACE
from inline_core.families.autoencoders.kl_spaces import SDXL as SDXL_SPACE
from inline_core.families.published import clip_tokenizer, one_file, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import (
    CATEGORIES_OF_ROLE,
    EncoderNeed,
    FamilyRules,
    Requirement,
    Sizes,
)
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import decode_values, encoder_values, tiled_decode_values
from inline_core.sampling.job import SampleJob
from inline_core.sampling.offer import Choice, Offer, Told
from inline_core.sampling.sigmas.tables import EpsTable

INPAINT: Final = "inpaint"
V, V_ZSNR, NOISE = "v", "v-zsnr", "eps"
TOLD: Final = (
    Told(NOISE, "Predicts noise (eps)"),
    Told(V, "Predicts v"),
    Told(V_ZSNR, "Predicts v, zero terminal SNR"),
)
_INPAINT_CHANNELS: Final = 9
_EDIT_CHANNELS: Final = 8
_TIME_IDS: Final = 6 * 256  # of SDXL: six encoded numbers beside the pooled prompt
_CHUNK: Final = 77
_ENCODER: Final = (768, 12), (1280, 32)  # width and layers of CLIP-L and CLIP-G
# Values alive in one pass, for each latent and channel of the first level; see `workload`.
_ALIVE: Final = 30
_ALIVE_ATTENDED: Final = 56


def _defaults(side: int, steps: int, guidance: float) -> Mapping[str, Mapping[str, Any]]:
    usual = {"width": side, "height": side, "steps": steps, "guidance": guidance}
    return MappingProxyType({"": usual})


def _checkpoint(repo: str, file: str, size_bytes: int) -> tuple[Requirement, Requirement]:
    """One file with everything, and the tokenizer of CLIP, which is in no checkpoint."""
    role, category = Role.DIFFUSION_MODEL, CATEGORIES_OF_ROLE[Role.CHECKPOINT][0]
    checkpoint = weights(role, one_file(repo, file), size_bytes, of="checkpoint", category=category)
    return checkpoint, clip_tokenizer()


def _sdxl_encoders_fit(model: Sizes, encoders: Sequence[Sizes]) -> bool:
    """CLIP-L and CLIP-G stand side by side; what is pooled is that of CLIP-G."""
    widths = [sizes.get("hidden_size", 0) for sizes in encoders]
    pooled = model.get("projection_class_embeddings_input_dim", 0) - _TIME_IDS
    return sum(widths) == model.get("cross_attention_dim") and widths[-1] == pooled


SD15_RULES: Final = FamilyRules(
    name="sd15",
    label="SD1.5",
    vae_family="autoencoder-kl",
    latent_channels=SD15_SPACE.channels,
    vae_words=SD15_SPACE.words,
    text_encoders=(EncoderNeed("clip", "l", size_of="cross_attention_dim"),),
    # A model that fills parts of pictures takes more channels than it gives.
    model_channels="out_channels",
    defaults=_defaults(512, 25, 7.0),
    requirements=_checkpoint(
        "Comfy-Org/stable-diffusion-v1-5-archive",
        "v1-5-pruned-emaonly-fp16.safetensors",
        2_132_696_762,
    ),
)
SDXL_RULES: Final = FamilyRules(
    name="sdxl",
    label="SDXL",
    vae_family="autoencoder-kl",
    latent_channels=SDXL_SPACE.channels,
    vae_words=SDXL_SPACE.words,
    text_encoders=(EncoderNeed("clip", "l", size_of=""), EncoderNeed("clip", "g", size_of="")),
    encoders_fit=_sdxl_encoders_fit,
    model_channels="out_channels",
    defaults=_defaults(1024, 30, 6.0),
    requirements=_checkpoint(
        "stabilityai/stable-diffusion-xl-base-1.0",
        "sd_xl_base_1.0.safetensors",
        6_938_078_334,
    ),
)


# Noise is left for it: of 25 steps it does the last five, as in the example of its release.
REFINER_RULES: Final = FamilyRules(
    name="sdxl-refiner",
    label="SDXL Refiner",
    vae_family="autoencoder-kl",
    latent_channels=SDXL_SPACE.channels,
    vae_words=SDXL_SPACE.words,
    text_encoders=(EncoderNeed("clip", "g", size_of="cross_attention_dim"),),
    model_channels="out_channels",
    defaults=_defaults(1024, 25, 6.0),
    requirements=_checkpoint(
        "stabilityai/stable-diffusion-xl-refiner-1.0",
        "sd_xl_refiner_1.0.safetensors",
        6_075_981_930,
    ),
)


def table(wanted: ScheduleFor) -> EpsTable:
    """The published sigmas; of some v models they go on to (nearly) nothing but noise."""
    return EpsTable(zero_snr=wanted.variant == V_ZSNR)


def check(job: SampleJob, geometry: Mapping[str, int]) -> None:
    """Refuse the kinds of U-Net that need inputs which are not there.  Raises: InvalidParam."""
    name, channels = job.model.name, geometry.get("in_channels")
    if channels == _EDIT_CHANNELS:
        message = f"{name} is InstructPix2Pix, which cannot be run here: use a base model"
        raise InvalidParam(message, param="model")
    fills = [latent for latent in job.positive.references if latent.mask is not None]
    if channels == _INPAINT_CHANNELS and len(fills) != 1:
        message = (
            f"{name} fills parts of pictures: wire a picture and a mask through Fill Conditioning"
        )
        raise InvalidParam(message, port="positive")
    if channels != _INPAINT_CHANNELS and job.positive.references:
        message = (
            f"{name} is no model for filling: leave Fill Conditioning out, and set the mask on the "
            "latent instead"
        )
        raise InvalidParam(message, port="positive")


def workload(size: PassSize) -> Workload:
    """Counted at the last level of the way up, where everything is at full latent resolution.

    There the skipped states of the whole way down are alive (about 5 times the channels), beside
    the inputs of a residual block (three times as wide where they are joined), its copies, or the
    feed-forward part of an attention (its gates are 8 times as wide).  Measured on the processor in
    float32 with real widths: 25 times the latents and channels of the first level for SDXL
    (768x768), which has no attention there, and 50 for SD1.5 (512x512).  As much as the skipped
    states is added for what a ControlNet gives.
    """
    geometry = size.geometry
    latents = (size.width // SD15_SPACE.factor) * (size.height // SD15_SPACE.factor)
    alive = _ALIVE_ATTENDED if geometry.get("attended", 1) else _ALIVE
    width, layers = _ENCODER[1 if "projection_class_embeddings_input_dim" in geometry else 0]
    pixels = (size.width, size.height)
    return Workload(
        encode_values=encoder_values(2 * _CHUNK, width, layers),
        denoise_values=size.members * latents * geometry.get("channels", 320) * alive,
        decode_values=decode_values(*pixels, size.decoder_channels),
        tiled_decode_values=tiled_decode_values(*pixels, size.decoder_channels),
    )


def _clip_skip(usual: int) -> Choice:
    return Choice("clip_skip", usual, "CLIP skip (1: last layer)", 1, 12, 1, advanced=True)


_SIZES: Final = tuple(
    Choice(key, 0, label, 0, 8192, 1, advanced=True)
    for key, label in (
        ("original_width", "Original width (0: of the picture)"),
        ("original_height", "Original height (0: of the picture)"),
        ("crop_x", "Cropped at the left"),
        ("crop_y", "Cropped at the top"),
        ("target_width", "Target width (0: of the picture)"),
        ("target_height", "Target height (0: of the picture)"),
    )
)


def _offers(name: str, title: str, choices: tuple[Choice, ...]) -> tuple[Offer, Offer]:
    return (
        Offer(
            name,
            title,
            takes=("image", "mask", "control"),
            variants=(NOISE, V, V_ZSNR),
            told=TOLD,
            choices=choices,
        ),
        Offer(
            f"{name}-inpaint",
            f"{title} Inpaint",
            takes=("inpaint", "control"),
            variants=(INPAINT,),
            choices=choices,
        ),
    )


SD15: Final = ModelFamily(
    rules=SD15_RULES,
    space=SD15_SPACE,
    table=table,
    size_multiple=8,
    runtime="inline_core.families.sd.components",
    workload=workload,
    looks_at_references=True,
    check=check,
    prompts_by_variant=True,
    controlled=True,
    offers=_offers("stabilityai/stable-diffusion-1-5", "Stable Diffusion 1.5", (_clip_skip(1),)),
)
SDXL: Final = ModelFamily(
    rules=SDXL_RULES,
    space=SDXL_SPACE,
    table=table,
    size_multiple=8,
    runtime="inline_core.families.sd.components",
    workload=workload,
    looks_at_references=True,
    check=check,
    prompts_by_variant=True,
    controlled=True,
    offers=_offers(
        "stabilityai/stable-diffusion-xl", "Stable Diffusion XL", (_clip_skip(2), *_SIZES)
    ),
)
SDXL_REFINER: Final = ModelFamily(
    rules=REFINER_RULES,
    space=SDXL_SPACE,
    table=table,
    size_multiple=8,
    runtime="inline_core.families.sd.components",
    workload=workload,
    check=check,
)
FAMILIES: Final = (SD15, SDXL, SDXL_REFINER)
