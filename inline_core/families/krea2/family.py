"""What Krea 2 is, without torch: its latent space, its schedule, its variants' defaults."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any, Final

from inline_core.devices.budget import Workload
from inline_core.devices.split import SplitTraits
from inline_core.families.autoencoders.wan_spaces import WAN_21
from inline_core.families.published import qwen_image_vae, split_file, tokenizer, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.offer import Absent, Choice, Offer
from inline_core.sampling.sigmas.tables import FlowTable, flux_table, mu_of_tokens, size_for

_REPO: Final = "Comfy-Org/Krea-2"
RAW: Final = "raw"
TURBO: Final = "turbo"


def _defaults(steps: int, guidance: float) -> dict[str, Any]:
    """Params of a variant; guidance 0 means none, as the distilled model wants it."""
    return {"width": 1024, "height": 1024, "steps": steps, "guidance": guidance}


RULES: Final = FamilyRules(
    name="krea-2",
    label="Krea 2",
    vae_family="autoencoder-kl-wan",
    latent_channels=WAN_21.channels,
    text_encoders=(EncoderNeed("qwen3-vl", size_of="text_hidden_dim"),),
    model_channels="",
    # Shapes do not tell RAW from Turbo, which is assumed: the node says which it is.
    defaults=MappingProxyType({TURBO: _defaults(8, 0.0), RAW: _defaults(28, 4.5)}),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            split_file(Role.DIFFUSION_MODEL, _REPO, "krea2_turbo_bf16.safetensors"),
            25_650_000_000,
        ),
        qwen_image_vae(_REPO),
        weights(
            Role.TEXT_ENCODER,
            split_file(Role.TEXT_ENCODER, _REPO, "qwen3vl_4b.safetensors"),
            8_880_000_000,
        ),
        tokenizer("Qwen/Qwen3-VL-4B-Instruct", "qwen3vl_4b", 11_430_000),
    ),
)

_PATCH_PIXELS: Final = 16  # latent factor 8, patches of 2
_TEXT_TOKENS: Final = 512
_ENCODER_LAYERS: Final = 36  # of Qwen3-VL 4B
# Of Krea2Pipeline: the distilled model has one shift, the other one grows with the picture.
_TURBO_MU: Final = 1.15
_FEW: Final = (256, 0.5)  # tokens and mu
_MANY: Final = (6400, 1.15)


def table(wanted: ScheduleFor) -> FlowTable:
    """Krea 2's sigmas; RAW's shift grows with the picture."""
    size = size_for(wanted.steps)
    if wanted.variant != RAW:
        return flux_table(_TURBO_MU, size)
    tokens = (wanted.width // _PATCH_PIXELS) * (wanted.height // _PATCH_PIXELS)
    return flux_table(mu_of_tokens(tokens, _FEW, _MANY), size)


def workload(size: PassSize) -> Workload:
    """Picture and text tokens go through the same blocks."""
    tokens = math.prod(side // _PATCH_PIXELS for side in (size.width, size.height)) + _TEXT_TOKENS
    geometry = size.geometry
    return picture_workload(
        tokens=tokens * size.members,
        width=geometry["num_attention_heads"] * geometry["attention_head_dim"],
        ffn_width=geometry["intermediate_size"],
        text=(_TEXT_TOKENS, geometry["text_hidden_dim"], _ENCODER_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )


_ABSENT: Final = (
    Absent("control_image", "Depth control", kind="control"),
    Absent("character", "Character", kind="character"),
    Absent("depth_controlnet", "Depth control-LoRA", category="controlnet"),
)


def _offer(variant: str, title: str, steps: int, guidance: float) -> Offer:
    return Offer(
        f"krea/krea-2-{variant}",
        title,
        takes=("image", "mask"),
        assumed=variant,
        guidance="above_one",
        size=(256, 2048),
        step=64,
        stated={"steps": steps, "guidance": guidance},
        absent=_ABSENT,
        idle=(Choice("control_strength", 1.0, "Control strength", 0.0, 2.0, 0.05),),
    )


KREA_2: Final = ModelFamily(
    rules=RULES,
    space=WAN_21,
    table=table,
    size_multiple=16,
    runtime="inline_core.families.krea2.components",
    workload=workload,
    splits=SplitTraits(
        xdit=frozenset({"ulysses"}),
        few_steps=frozenset({TURBO}),
        without_cfg=frozenset({TURBO}),
    ),
    offers=(
        _offer(TURBO, "Krea 2 Turbo", 8, 0.0),
        _offer(RAW, "Krea 2 RAW", 28, 4.5),
    ),
)
FAMILIES: Final = (KREA_2,)
