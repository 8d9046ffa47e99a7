"""What Z-Image is, without torch: its latent space, its schedule, its variants' defaults."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from inline_core.devices.budget import Workload
from inline_core.devices.split import SplitTraits
from inline_core.families.autoencoders.kl_spaces import FLUX
from inline_core.families.published import flux_vae, qwen3_4b, split_file, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.offer import Offer
from inline_core.sampling.sigmas.tables import FlowTable

# Shapes do not tell the base model from Turbo, which is assumed unless its node is used.
BASE: Final = "base"
TURBO: Final = "turbo"
_SHIFT: Final = 3.0


def _defaults(side: int, guidance: float = 0.0, steps: int = 8) -> dict[str, Any]:
    """Params of a variant; guidance 0 means none, as the distilled models want it."""
    return {"width": side, "height": side, "steps": steps, "guidance": guidance, "shift": _SHIFT}


_REPO: Final = "Comfy-Org/z_image_turbo"
_REQUIREMENTS: Final = (
    weights(
        Role.DIFFUSION_MODEL,
        split_file(Role.DIFFUSION_MODEL, _REPO, "z_image_turbo_bf16.safetensors"),
        12_310_000_000,
    ),
    flux_vae(),
    *qwen3_4b(_REPO),
)

RULES: Final = FamilyRules(
    name="z-image",
    label="Z-Image",
    vae_family="autoencoder-kl",
    latent_channels=FLUX.channels,
    vae_words=FLUX.words,
    text_encoders=(EncoderNeed("qwen3"),),
    defaults=MappingProxyType(
        # The demo is not distilled: a little guidance makes its outlines firmer.
        {
            TURBO: _defaults(1024),
            "demo": _defaults(128, 1.0),
            "tiny": _defaults(128),
            BASE: _defaults(1024, 4.0, 50),
        }
    ),
    settings_fields=MappingProxyType(
        {
            Role.DIFFUSION_MODEL: "zimage_model",
            Role.VAE: "zimage_vae",
            Role.TEXT_ENCODER: "zimage_text_encoder",
        }
    ),
    requirements=_REQUIREMENTS,
)

_PATCH_PIXELS: Final = 16  # latent factor 8, patches of 2
_TEXT_TOKENS: Final = 512
_ENCODER_LAYERS: Final = 36  # of Qwen3 4B


def workload(size: PassSize) -> Workload:
    """Picture and text tokens go through the same blocks; their feed-forward is 8/3 wide."""
    tokens = (size.width // _PATCH_PIXELS) * (size.height // _PATCH_PIXELS) + _TEXT_TOKENS
    tokens *= size.members
    dim = size.geometry["dim"]
    work = picture_workload(
        tokens=tokens,
        width=dim,
        ffn_width=dim * 8 // 3,
        text=(_TEXT_TOKENS, size.geometry["cap_feat_dim"], _ENCODER_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )
    # What a ControlNet adds after half of the blocks, held once while it is stacked and once after.
    if not size.controls:
        return work
    added = size.controls * tokens * dim * size.geometry["n_layers"]
    return replace(work, denoise_values=work.denoise_values + added)


def _offer(name: str, title: str, steps: int, guidance: float, **more: Any) -> Offer:
    return Offer(
        f"alibaba/{name}",
        title,
        takes=("image", "mask", "control"),
        guidance="above_one",
        step=64,
        stated={"steps": steps, "guidance": guidance},
        labels={"control_image": "Control"},
        control_key="controlnet_conditioning_scale",
        **more,
    )


Z_IMAGE: Final = ModelFamily(
    rules=RULES,
    space=FLUX,
    table=lambda _: FlowTable(_SHIFT),
    size_multiple=16,
    runtime="inline_core.families.z_image.components",
    workload=workload,
    offers=(
        _offer("z-image-turbo", "Z-Image Turbo", 8, 0.0, stated_by_variant=True),
        _offer("z-image", "Z-Image", 50, 4.0, assumed=BASE),
    ),
    controlled=True,
    control_latents=True,
    splits=SplitTraits(
        xdit=frozenset({"ulysses", "ring", "cfg"}),
        diffusers=frozenset({"ulysses"}),
        pads_heads=True,
        few_steps=frozenset({TURBO}),
        without_cfg=frozenset({TURBO}),
    ),
    rank=0,
)
FAMILIES: Final = (Z_IMAGE,)
