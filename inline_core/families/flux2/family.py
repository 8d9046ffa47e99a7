"""What FLUX.2 is, without torch: its latent space, its schedule, its variants' defaults."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from inline_core.devices.budget import Workload
from inline_core.devices.split import SplitTraits
from inline_core.families.autoencoders.kl_spaces import FLUX_2 as FLUX_2_LATENTS
from inline_core.families.autoencoders.kl_spaces import FLUX_2_VAE_CHANNELS
from inline_core.families.flux2.references import as_reference
from inline_core.families.published import qwen3_4b, split_file, tokenizer, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.offer import Absent, Choice, Offer, Told
from inline_core.sampling.sigmas.published import flux2_mu
from inline_core.sampling.sigmas.tables import FlowTable, flux_table, size_for

FLUX_2_SPACE: Final = FLUX_2_LATENTS
_REFERENCES: Final = 10  # as many as its makers take


def _defaults(steps: int, guidance: float) -> dict[str, Any]:
    """Params of a variant; guidance 1 means none, as the distilled models want it."""
    return {"width": 1024, "height": 1024, "steps": steps, "guidance": guidance}


_DISTILLED: Final = _defaults(4, 1.0)
_BASE: Final = _defaults(50, 4.0)

_REPO: Final = "Comfy-Org/flux2-klein-4B"
_KLEIN_4B: Final = "klein-4b"
_KLEIN_9B: Final = "klein-9b"
KLEIN_KV: Final = "klein-9b-kv"  # trained with reference images that look at nothing else
# Made for so few steps, and without guidance.
_DISTILLED_KINDS: Final = frozenset({_KLEIN_4B, _KLEIN_9B, KLEIN_KV})
_DEV: Final = "dev"
_DEV_REPO: Final = "Comfy-Org/flux2-dev"
_MISTRAL: Final = EncoderNeed("mistral3")
# For who wants dev; who has klein needs none of it.
_FOR_DEV: Final = EncoderNeed("mistral3", optional=True)
_MISTRAL_FILE: Final = "mistral_3_small_flux2_fp8"

_REQUIREMENTS: Final = (
    weights(
        Role.DIFFUSION_MODEL,
        split_file(Role.DIFFUSION_MODEL, _REPO, "flux-2-klein-4b.safetensors"),
        7_751_000_000,
        of="klein 4B",
    ),
    weights(Role.VAE, split_file(Role.VAE, _REPO, "flux2-vae.safetensors"), 336_000_000),
    *qwen3_4b(_REPO),
    replace(
        weights(
            Role.DIFFUSION_MODEL,
            split_file(Role.DIFFUSION_MODEL, _DEV_REPO, "flux2_dev_fp8mixed.safetensors"),
            35_500_000_000,
            of=_DEV,
        ),
        id="diffusion_dev",
        optional=True,
        variant=_DEV,
    ),
    weights(
        Role.TEXT_ENCODER,
        split_file(Role.TEXT_ENCODER, _DEV_REPO, f"{_MISTRAL_FILE}.safetensors"),
        18_000_000_000,
        of="Mistral Small 3, for dev",
        number=2,
        encoder=_FOR_DEV,
    ),
    tokenizer(
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
        _MISTRAL_FILE,
        17_300_000,
        of="Mistral Small 3, for dev",
        number=2,
        encoder=_FOR_DEV,
    ),
)

RULES: Final = FamilyRules(
    name="flux-2",
    label="FLUX.2",
    vae_family="autoencoder-kl-flux-2",
    latent_channels=FLUX_2_VAE_CHANNELS,
    text_encoders=(EncoderNeed("qwen3"),),
    encoders_of_variant=MappingProxyType({_DEV: (_MISTRAL,)}),
    defaults=MappingProxyType(
        {
            # Shapes do not tell base models from distilled ones, which are assumed.
            _KLEIN_4B: _DISTILLED,
            "klein-4b-base": _BASE,
            _KLEIN_9B: _DISTILLED,
            "klein-9b-base": _BASE,
            KLEIN_KV: _DISTILLED,
            _DEV: _BASE,
        }
    ),
    requirements=_REQUIREMENTS,
)

_TEXT_TOKENS: Final = 512
_ENCODER_LAYERS: Final = 36  # of Qwen3 4B and 8B
# A single-stream block has q, k, v and both halves of its feed-forward part in one tensor of 9
# widths; beside it live input and norm, q and k with positions, the output of attention, the
# product of the halves, and what goes into the last matrix.  Counted on the meta device at the
# sizes of klein 4B and 9B: 21.6 to 22.2 widths a token; this gives 24.
_LIKE_FEED_FORWARD: Final = 4.5
_LARGEST_MATRIX: Final = 9


def table(wanted: ScheduleFor) -> FlowTable:
    """FLUX.2's sigmas: mu is fitted to the picture and the number of steps."""
    size = size_for(wanted.steps)
    return flux_table(flux2_mu(wanted.steps, wanted.width, wanted.height), size)


def workload(size: PassSize) -> Workload:
    """Picture and text tokens go through the same blocks; the text always has its full length."""
    factor = FLUX_2_SPACE.factor
    tokens = (size.width // factor) * (size.height // factor) + _TEXT_TOKENS
    tokens += size.reference_pixels // factor**2
    width = size.geometry["num_attention_heads"] * size.geometry["attention_head_dim"]
    ffn_width = int(width * _LIKE_FEED_FORWARD)
    work = picture_workload(
        tokens=tokens * size.members,
        width=width,
        ffn_width=ffn_width,
        text=(_TEXT_TOKENS, size.geometry["cap_feat_dim"], _ENCODER_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )
    unpacked = width * (_LARGEST_MATRIX * width - ffn_width)
    return replace(work, denoise_values=work.denoise_values + unpacked)


FLUX_2: Final = ModelFamily(
    rules=RULES,
    space=FLUX_2_SPACE,
    table=table,
    size_multiple=16,
    runtime="inline_core.families.flux2.components",
    workload=workload,
    guidance_input="guidance_embeds",
    looks_at_references=True,
    prompts_by_variant=True,
    splits=SplitTraits(
        xdit=frozenset({"ulysses", "ring", "pipefusion"}),
        diffusers=frozenset({"ulysses", "ring"}),
        few_steps=_DISTILLED_KINDS,
        without_cfg=_DISTILLED_KINDS,
    ),
    offers=(
        Offer(
            "black-forest-labs/flux-2",
            "FLUX.2",
            takes=("references",),
            guided_inside=(_DEV,),
            told=(
                Told("klein-4b", "FLUX.2 Klein 4B", "klein-4b"),
                Told("klein-4b-base", "FLUX.2 Klein 4B Base", "klein-4b"),
                Told("klein-9b", "FLUX.2 Klein 9B", "klein-9b"),
                Told("klein-9b-base", "FLUX.2 Klein 9B Base", "klein-9b"),
                Told(KLEIN_KV, "FLUX.2 Klein 9B KV", "klein-9b"),
                Told(_DEV, "FLUX.2 dev", _DEV),
            ),
            labels={"negative_prompt": "Negative prompt (base models only)"},
            size=(256, 2048),
            step=64,
            sized_by_reference=False,
            references=_REFERENCES,
            reference=as_reference,
            absent=(
                Absent("control_image", "Structure map", kind="control"),
                Absent("character", "Character", kind="character"),
                Absent("controlnet", "ControlNet (dev only)", category="controlnet"),
            ),
            idle=(Choice("control_strength", 0.75, "Control strength", 0.0, 2.0, 0.05),),
        ),
    ),
    rank=1,
)
FAMILIES: Final = (FLUX_2,)
