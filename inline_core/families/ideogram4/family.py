"""What Ideogram 4 is, without torch: its latent space, its schedule, its defaults."""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import Workload
from inline_core.families.autoencoders.kl_spaces import FLUX_2, FLUX_2_VAE_CHANNELS
from inline_core.families.ideogram4.architecture import LAYERS_READ, TEXT_WIDTH
from inline_core.families.published import one_file, split_file, tokenizer, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.offer import Offer
from inline_core.sampling.sigmas.logit_normal import LogitNormalTable, resolution_mu
from inline_core.sampling.sigmas.tables import size_for

_REPO: Final = "Comfy-Org/Ideogram-4"
_TEXT_FILE: Final = "qwen3vl_8b_fp8_scaled"
_UNCONDITIONAL: Final = "diffusion_models/ideogram4_unconditional_fp8_scaled.safetensors"

RULES: Final = FamilyRules(
    name="ideogram-4",
    label="Ideogram 4",
    vae_family="autoencoder-kl-flux-2",
    latent_channels=FLUX_2_VAE_CHANNELS,
    text_encoders=(EncoderNeed("qwen3-vl", size_of=TEXT_WIDTH),),
    model_channels="",
    # Of Ideogram4Pipeline, but for its last three steps, which it guides by 3.
    defaults=MappingProxyType({"": {"width": 2048, "height": 2048, "steps": 48, "guidance": 7.0}}),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            one_file(_REPO, "diffusion_models/ideogram4_fp8_scaled.safetensors"),
            9_400_000_000,
        ),
        replace(
            weights(
                Role.DIFFUSION_MODEL,
                one_file(_REPO, _UNCONDITIONAL),
                9_400_000_000,
                of="guiding model, without words",
            ),
            id="diffusion_unconditional",
            optional=True,
        ),
        weights(
            Role.VAE,
            split_file(Role.VAE, "Comfy-Org/flux2-dev", "flux2-vae.safetensors"),
            336_000_000,
        ),
        weights(
            Role.TEXT_ENCODER,
            one_file("Comfy-Org/Qwen3-VL", f"text_encoders/{_TEXT_FILE}.safetensors"),
            9_400_000_000,
        ),
        tokenizer("Qwen/Qwen3-VL-8B-Instruct", _TEXT_FILE, 11_430_000),
    ),
)

_TEXT_TOKENS: Final = 1024
_ENCODER_LAYERS: Final = 36  # of Qwen3-VL 8B


def table(wanted: ScheduleFor) -> LogitNormalTable:
    """Ideogram 4's sigmas: mu grows with the picture."""
    return LogitNormalTable(resolution_mu(wanted.width, wanted.height), size=size_for(wanted.steps))


def workload(size: PassSize) -> Workload:
    """Picture and words go through the same blocks; what may be seen is told pair by pair."""
    tokens = math.prod(side // FLUX_2.factor for side in (size.width, size.height)) + _TEXT_TOKENS
    geometry = size.geometry
    work = picture_workload(
        tokens=tokens * size.members,
        width=geometry["num_attention_heads"] * geometry["attention_head_dim"],
        ffn_width=geometry["intermediate_size"],
        text=(_TEXT_TOKENS, LAYERS_READ * geometry[TEXT_WIDTH], _ENCODER_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )
    # A byte for each pair of tokens: half a value.
    return replace(work, denoise_values=work.denoise_values + size.members * tokens**2 // 2)


IDEOGRAM_4: Final = ModelFamily(
    rules=RULES,
    space=FLUX_2,
    table=table,
    size_multiple=FLUX_2.factor,
    runtime="inline_core.families.ideogram4.components",
    workload=workload,
    offers=(Offer("ideogram-ai/ideogram-4", "Ideogram 4", takes=("image", "mask"), guiding=True),),
)
FAMILIES: Final = (IDEOGRAM_4,)
