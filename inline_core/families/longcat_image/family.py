"""What LongCat-Image is, without torch: its latent space, its schedule, its defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import Workload
from inline_core.errors import InvalidParam
from inline_core.families.autoencoders.kl_spaces import FLUX
from inline_core.families.longcat_image.pictures import as_condition, as_reference
from inline_core.families.published import flux_vae, one_file, split_file, tokenizer, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.job import SampleJob
from inline_core.sampling.offer import Offer
from inline_core.sampling.patches import KeepLength
from inline_core.sampling.sigmas.tables import FlowTable, flux_mu, flux_table, size_for

EDIT: Final = "edit"
_TEXT_FILE: Final = "qwen_2.5_vl_7b_fp8_scaled"
_DEFAULTS: Final = MappingProxyType({"width": 1024, "height": 1024, "steps": 50, "guidance": 4.5})
RULES: Final = FamilyRules(
    name="longcat-image",
    label="LongCat-Image",
    vae_family="autoencoder-kl",
    latent_channels=FLUX.channels,
    vae_words=FLUX.words,
    text_encoders=(EncoderNeed("qwen2.5-vl", size_of="joint_attention_dim"),),
    model_channels="",
    # LongCat-Image and LongCat-Image-Edit have the same shapes.
    defaults=MappingProxyType({"": _DEFAULTS, EDIT: _DEFAULTS}),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            one_file(
                "TalmajM/LongCat-Image-Edit_ComfyUI_repackaged",
                "split_files/diffusion_models/longcat_image_edit_bf16.safetensors",
            ),
            12_540_000_000,
            of="Edit",
        ),
        flux_vae(),
        weights(
            Role.TEXT_ENCODER,
            split_file(
                Role.TEXT_ENCODER, "Comfy-Org/Qwen-Image_ComfyUI", f"{_TEXT_FILE}.safetensors"
            ),
            9_380_000_000,
        ),
        tokenizer("Qwen/Qwen2.5-VL-7B-Instruct", _TEXT_FILE, 7_030_000),
    ),
)

_PATCH_PIXELS: Final = 16  # latent factor 8, patches of 2
_TEXT_TOKENS: Final = 512
_ENCODER_LAYERS: Final = 28  # of Qwen2.5-VL 7B


def table(wanted: ScheduleFor) -> FlowTable:
    """Those of FLUX.1: mu grows with the picture."""
    return flux_table(flux_mu(wanted.width, wanted.height), size_for(wanted.steps))


def workload(size: PassSize) -> Workload:
    """Picture and words go through the same blocks, whose feed-forward is 4 wide."""
    tokens = math.prod(side // _PATCH_PIXELS for side in (size.width, size.height)) + _TEXT_TOKENS
    tokens += size.reference_pixels // _PATCH_PIXELS**2
    geometry = size.geometry
    width = geometry["num_attention_heads"] * geometry["attention_head_dim"]
    return picture_workload(
        tokens=tokens * size.members,
        width=width,
        ffn_width=4 * width,
        text=(_TEXT_TOKENS, geometry["joint_attention_dim"], _ENCODER_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )


def check(job: SampleJob, _: Mapping[str, int]) -> None:
    """Raise InvalidParam unless the one picture goes to text encoder and model alike."""
    references, pictures = len(job.positive.references), len(job.positive.pictures)
    if references > 1 or pictures != references:
        message = (
            f"LongCat-Image-Edit looks at one picture, with its text encoder and as a reference; "
            f"the text encoder is given {pictures}, and references are {references}"
        )
        raise InvalidParam(message, port="positive")


LONGCAT_IMAGE: Final = ModelFamily(
    rules=RULES,
    space=FLUX,
    table=table,
    size_multiple=_PATCH_PIXELS,
    runtime="inline_core.families.longcat_image.components",
    workload=workload,
    looks_at_references=True,
    reads_pictures=True,
    ignores_guidance=True,
    check=check,
    offers=(
        Offer(
            "meituan/longcat-image",
            "LongCat-Image",
            takes=("image", "mask"),
            guided=(KeepLength(shorten_only=True),),
        ),
        Offer(
            "meituan/longcat-image-edit",
            "LongCat-Image Edit",
            takes=("references",),
            assumed=EDIT,
            references=1,
            reference=as_reference,
            picture=as_condition,
        ),
    ),
)
FAMILIES: Final = (LONGCAT_IMAGE,)
