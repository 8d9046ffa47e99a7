"""What Ovis-Image is, without torch: its latent space, its schedule, its defaults."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import Workload
from inline_core.families.autoencoders.kl_spaces import FLUX
from inline_core.families.published import flux_vae, folder, tokenizer, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.offer import Offer
from inline_core.sampling.sigmas.tables import FlowTable, flux_mu, flux_table, size_for

_REPO: Final = "AIDC-AI/Ovis-Image-7B"
RULES: Final = FamilyRules(
    name="ovis-image",
    label="Ovis-Image",
    vae_family="autoencoder-kl",
    latent_channels=FLUX.channels,
    vae_words=FLUX.words,
    text_encoders=(EncoderNeed("qwen3", size_of="joint_attention_dim"),),
    model_channels="",
    defaults=MappingProxyType({"": {"width": 1024, "height": 1024, "steps": 50, "guidance": 5.0}}),
    requirements=(
        weights(Role.DIFFUSION_MODEL, folder(_REPO, "transformer", "ovis-image"), 14_700_000_000),
        flux_vae(),
        weights(
            Role.TEXT_ENCODER,
            folder(_REPO, "text_encoder", "ovis-image-text", ("config.json", "model.safetensors")),
            3_440_000_000,
        ),
        tokenizer(_REPO, "ovis-image-text", 11_430_000, part="tokenizer"),
    ),
)

_PATCH_PIXELS: Final = 16  # latent factor 8, patches of 2
_TEXT_TOKENS: Final = 256
_ENCODER_LAYERS: Final = 28  # of Qwen3 1.7B


def table(wanted: ScheduleFor) -> FlowTable:
    """Those of FLUX.1: mu grows with the picture; entries at every step's share of the time."""
    size = size_for(wanted.steps)
    return flux_table(flux_mu(wanted.width, wanted.height), size)


def workload(size: PassSize) -> Workload:
    """Picture and text tokens go through the same blocks; their feed-forward is 8 wide (gated)."""
    tokens = math.prod(side // _PATCH_PIXELS for side in (size.width, size.height)) + _TEXT_TOKENS
    geometry = size.geometry
    width = geometry["num_attention_heads"] * geometry["attention_head_dim"]
    return picture_workload(
        tokens=tokens * size.members,
        width=width,
        ffn_width=8 * width,
        text=(_TEXT_TOKENS, geometry["joint_attention_dim"], _ENCODER_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )


OVIS_IMAGE: Final = ModelFamily(
    rules=RULES,
    space=FLUX,
    table=table,
    size_multiple=16,
    runtime="inline_core.families.ovis_image.components",
    workload=workload,
    offers=(Offer("aidc-ai/ovis-image", "Ovis-Image", takes=("image", "mask")),),
)
FAMILIES: Final = (OVIS_IMAGE,)
