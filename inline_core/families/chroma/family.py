"""What Chroma is, without torch: its latent space, its schedule, its defaults."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import Workload
from inline_core.families.autoencoders.kl_spaces import FLUX
from inline_core.families.flux1 import family as flux1
from inline_core.families.published import flux_vae, one_file, t5_xxl, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.offer import Offer
from inline_core.sampling.sigmas.tables import FlowTable

_T5: Final = EncoderNeed("t5", size_of="joint_attention_dim")
RULES: Final = FamilyRules(
    name="chroma",
    label="Chroma",
    vae_family="autoencoder-kl",
    latent_channels=FLUX.channels,
    vae_words=FLUX.words,
    text_encoders=(_T5,),
    model_channels="",
    # Of the card of Chroma1-HD.
    defaults=MappingProxyType({"": {"width": 1024, "height": 1024, "steps": 40, "guidance": 3.0}}),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            one_file("lodestones/Chroma1-HD", "Chroma1-HD.safetensors"),
            17_800_000_000,
            of="Chroma1-HD",
        ),
        flux_vae(),
        *t5_xxl(_T5, 1),
    ),
)


def table(wanted: ScheduleFor) -> FlowTable:
    """The sigmas of FLUX.1 dev."""
    return flux1.table(replace(wanted, variant=flux1.DEV))


def workload(size: PassSize) -> Workload:
    """The blocks are those of FLUX.1."""
    return flux1.workload(size)


CHROMA: Final = ModelFamily(
    rules=RULES,
    space=FLUX,
    table=table,
    size_multiple=flux1.PATCH_PIXELS,
    runtime="inline_core.families.chroma.components",
    workload=workload,
    offers=(Offer("lodestones/chroma", "Chroma", takes=("image", "mask")),),
)
FAMILIES: Final = (CHROMA,)
