"""What ERNIE-Image is, without torch: its latent space, its schedule, its defaults."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import Workload
from inline_core.families.autoencoders.kl_spaces import FLUX_2, FLUX_2_VAE_CHANNELS
from inline_core.families.published import one_file, tokenizer, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.offer import Offer
from inline_core.sampling.sigmas.tables import FlowTable, size_for

_REPO: Final = "Comfy-Org/ERNIE-Image"
_TEXT_FILE: Final = "ministral-3-3b"
RULES: Final = FamilyRules(
    name="ernie-image",
    label="ERNIE-Image",
    vae_family="autoencoder-kl-flux-2",
    latent_channels=FLUX_2_VAE_CHANNELS,
    text_encoders=(EncoderNeed("mistral3", size_of="text_in_dim"),),
    model_channels="",
    # Of ErnieImagePipeline.
    defaults=MappingProxyType({"": {"width": 1024, "height": 1024, "steps": 50, "guidance": 4.0}}),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            one_file(_REPO, "diffusion_models/ernie-image.safetensors"),
            16_100_000_000,
        ),
        weights(Role.VAE, one_file(_REPO, "vae/flux2-vae.safetensors"), 336_000_000),
        weights(
            Role.TEXT_ENCODER,
            one_file(_REPO, f"text_encoders/{_TEXT_FILE}.safetensors"),
            7_700_000_000,
        ),
        tokenizer("mistralai/Ministral-3-3B-Instruct-2512", _TEXT_FILE, 17_300_000),
    ),
)

_TEXT_TOKENS: Final = 512
_ENCODER_LAYERS: Final = 26  # of Ministral 3 3B
# Of the published scheduler_config.json, from memory: the pipeline takes what that says.
_SHIFT: Final = 4.0


def table(wanted: ScheduleFor) -> FlowTable:
    """ERNIE-Image's sigmas: one shift for all sizes."""
    return FlowTable(_SHIFT, multiplier=1000.0, size=size_for(wanted.steps))


def workload(size: PassSize) -> Workload:
    """Picture and words go through the same blocks; the feed-forward is gated."""
    tokens = math.prod(side // FLUX_2.factor for side in (size.width, size.height)) + _TEXT_TOKENS
    geometry = size.geometry
    return picture_workload(
        tokens=tokens * size.members,
        width=geometry["hidden_size"],
        ffn_width=2 * geometry["ffn_hidden_size"],
        text=(_TEXT_TOKENS, geometry["text_in_dim"], _ENCODER_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )


ERNIE_IMAGE: Final = ModelFamily(
    rules=RULES,
    space=FLUX_2,
    table=table,
    size_multiple=FLUX_2.factor,
    runtime="inline_core.families.ernie_image.components",
    workload=workload,
    readers=MappingProxyType({"mistral3": "inline_core.families.ernie_image.ministral"}),
    offers=(Offer("baidu/ernie-image", "ERNIE-Image", takes=("image", "mask")),),
)
FAMILIES: Final = (ERNIE_IMAGE,)
