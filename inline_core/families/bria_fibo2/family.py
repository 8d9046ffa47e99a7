"""What Bria FIBO 2 is, without torch: its latent space, its schedule, its defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import Workload
from inline_core.errors import InvalidParam
from inline_core.families.autoencoders.kl_spaces import FLUX_2, FLUX_2_VAE_CHANNELS
from inline_core.families.bria_fibo2.architecture import TEXT_WIDTH
from inline_core.families.bria_fibo2.pictures import as_condition, as_reference
from inline_core.families.published import one_file, tokenizer, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.job import SampleJob
from inline_core.sampling.offer import Offer
from inline_core.sampling.sigmas.tables import FlowTable, flux_mu, flux_table, size_for

EDIT: Final = "edit"
_REPO: Final = "Comfy-Org/Fibo-2.0"
MOST_PICTURES: Final = 5
# Of BriaFibo2Pipeline.
_DEFAULTS: Final = MappingProxyType({"width": 1024, "height": 1024, "steps": 30, "guidance": 5.0})
RULES: Final = FamilyRules(
    name="bria-fibo-2",
    label="Bria FIBO 2",
    vae_family="autoencoder-kl-flux-2",
    latent_channels=FLUX_2_VAE_CHANNELS,
    text_encoders=(EncoderNeed("qwen3-vl", size_of=TEXT_WIDTH),),
    model_channels="",
    # One model makes pictures and edits them.
    defaults=MappingProxyType({"": _DEFAULTS, EDIT: _DEFAULTS}),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            one_file(_REPO, "diffusion_models/fibo2_dev_int8_convrot.safetensors"),
            8_000_000_000,
        ),
        weights(
            Role.VAE,
            one_file(_REPO, "vae/flux2-vae.safetensors"),
            336_000_000,
        ),
        weights(
            Role.TEXT_ENCODER,
            one_file(_REPO, "text_encoders/qwen3vl_4b_bf16.safetensors"),
            8_880_000_000,
        ),
        tokenizer("Qwen/Qwen3-VL-4B-Instruct", "qwen3vl_4b_bf16", 11_430_000),
    ),
)

_TEXT_TOKENS: Final = 1024
_GIST_TOKENS: Final = 512
_BUNDLES: Final = 6
_ENCODER_LAYERS: Final = 36  # of Qwen3-VL 4B


def table(wanted: ScheduleFor) -> FlowTable:
    """FIBO 2's sigmas: mu grows with the picture, on the line of FLUX.1.

    That is what a scheduler of diffusers has where its config does not say otherwise; the published
    config is not known here.
    """
    return flux_table(flux_mu(wanted.width, wanted.height), size_for(wanted.steps))


def workload(size: PassSize) -> Workload:
    """Picture and gist go through the same blocks, some of which read all words beside."""
    tokens = math.prod(side // FLUX_2.factor for side in (size.width, size.height)) + _GIST_TOKENS
    tokens += size.reference_pixels // FLUX_2.factor**2
    geometry = size.geometry
    return picture_workload(
        tokens=tokens * size.members,
        width=geometry["dim"],
        ffn_width=geometry["dim"] * 8 // 3,
        text=(_TEXT_TOKENS, _BUNDLES * geometry["cap_feat_dim"], _ENCODER_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )


def check(job: SampleJob, _: Mapping[str, int]) -> None:
    """Raise InvalidParam unless the pictures go to text encoder and model alike."""
    references, pictures = len(job.positive.references), len(job.positive.pictures)
    if pictures != references or pictures > MOST_PICTURES:
        message = (
            f"Bria FIBO 2 edits up to {MOST_PICTURES} pictures, which its text encoder sees and "
            f"which are references: the text encoder is given {pictures}, references are "
            f"{references}"
        )
        raise InvalidParam(message, port="positive")


BRIA_FIBO_2: Final = ModelFamily(
    rules=RULES,
    space=FLUX_2,
    table=table,
    size_multiple=FLUX_2.factor,
    runtime="inline_core.families.bria_fibo2.components",
    workload=workload,
    looks_at_references=True,
    reads_pictures=True,
    readers=MappingProxyType({"qwen3-vl": "inline_core.families.text_encoders.qwen3_vl_pictures"}),
    check=check,
    offers=(
        Offer("briaai/fibo-2", "Bria FIBO 2", takes=("image", "mask")),
        Offer(
            "briaai/fibo-2-edit",
            "Bria FIBO 2 Edit",
            takes=("references",),
            assumed=EDIT,
            references=MOST_PICTURES,
            reference=as_reference,
            picture=as_condition,
        ),
    ),
)
FAMILIES: Final = (BRIA_FIBO_2,)
