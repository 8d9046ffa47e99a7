"""What Qwen-Image 2.1 is, without torch: its latent space, its schedule, its defaults."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import Workload
from inline_core.families.published import one_file, tokenizer, weights
from inline_core.families.qwen_image_21.pictures import MULTIPLE, as_reference
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import LatentSpace, ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.offer import Offer
from inline_core.sampling.sigmas.tables import FlowTable, flux_mu, flux_table, size_for

SPACE: Final = LatentSpace("qwen-image-2.1", channels=64, factor=16)
EDIT: Final = "edit"
_VAE: Final = "autoencoder-kl-qwen-image-2.1"
_REPO: Final = "Comfy-Org/Qwen-Image-2.1"
# Of QwenImage21Pipeline, which wants no guidance.
_DEFAULTS: Final = MappingProxyType({"width": 1024, "height": 1024, "steps": 40, "guidance": 1.0})

RULES: Final = FamilyRules(
    name="qwen-image-2.1",
    label="Qwen-Image 2.1",
    vae_family=_VAE,
    latent_channels=SPACE.channels,
    text_encoders=(EncoderNeed("qwen3-vl", size_of="context_in_dim"),),
    defaults=MappingProxyType({"": _DEFAULTS, EDIT: _DEFAULTS}),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            one_file(_REPO, "diffusion_models/qwen_image_2.1_int8_convrot.safetensors"),
            7_500_000_000,
        ),
        weights(Role.VAE, one_file(_REPO, "vae/qwen_image_2.1_vae_bf16.safetensors"), 500_000_000),
        weights(
            Role.TEXT_ENCODER,
            one_file(_REPO, "text_encoders/qwen3vl_8b_int8_convrot.safetensors"),
            9_500_000_000,
        ),
        tokenizer("Qwen/Qwen3-VL-8B-Instruct", "qwen3vl_8b_int8_convrot", 11_430_000),
    ),
)

_TOKEN_PIXELS: Final = 16  # the latent factor; there are no patches
_TEXT_TOKENS: Final = 1024
_ENCODER_LAYERS: Final = 36  # of Qwen3-VL 8B


def table(wanted: ScheduleFor) -> FlowTable:
    """Qwen-Image 2.1's sigmas: mu grows with the picture, on the line of FLUX.1.

    That is what QwenImage21Pipeline takes where the scheduler's config does not say otherwise; the
    published config is not known here.
    """
    return flux_table(flux_mu(wanted.width, wanted.height), size_for(wanted.steps))


def workload(size: PassSize) -> Workload:
    """Words, pictures and what is made are one sequence; the feed-forward is gated."""
    tokens = math.prod(side // _TOKEN_PIXELS for side in (size.width, size.height)) + _TEXT_TOKENS
    tokens += size.reference_pixels // _TOKEN_PIXELS**2
    geometry = size.geometry
    width = geometry["num_attention_heads"] * geometry["attention_head_dim"]
    return picture_workload(
        tokens=tokens * size.members,
        width=width,
        ffn_width=2 * geometry["mlp_ratio"] * width,
        text=(_TEXT_TOKENS, geometry["context_in_dim"], _ENCODER_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )


QWEN_IMAGE_2_1: Final = ModelFamily(
    rules=RULES,
    space=SPACE,
    table=table,
    size_multiple=MULTIPLE,
    runtime="inline_core.families.qwen_image_21.components",
    workload=workload,
    looks_at_references=True,
    reads_pictures=True,
    modules=MappingProxyType({(Role.VAE, _VAE): "inline_core.families.qwen_image_21.vae"}),
    readers=MappingProxyType({"qwen3-vl": "inline_core.families.text_encoders.qwen3_vl_pictures"}),
    offers=(
        Offer("qwen/qwen-image-2.1", "Qwen-Image 2.1", takes=("image", "mask")),
        Offer(
            "qwen/qwen-image-2.1-edit",
            "Qwen-Image 2.1 Edit",
            takes=("references",),
            assumed=EDIT,
            references=16,
            reference=as_reference,
            picture=as_reference,
        ),
    ),
)
FAMILIES: Final = (QWEN_IMAGE_2_1,)
