"""What Z-Image is, without torch: its latent space, its schedule, its variants' defaults."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from inline_core.devices.budget import Workload
from inline_core.families.autoencoders.kl_spaces import FLUX
from inline_core.families.published import flux_vae, qwen3_4b, split_file, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.offer import Absent, Choice, Offer
from inline_core.sampling.sigmas.tables import FlowTable


def _defaults(side: int, guidance: float = 0.0) -> dict[str, Any]:
    """Params of a variant; guidance 0 means none, as the distilled models want it."""
    return {"width": side, "height": side, "steps": 8, "guidance": guidance, "shift": 3.0}


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
        {"turbo": _defaults(1024), "demo": _defaults(128, 1.0), "tiny": _defaults(128)}
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
    dim = size.geometry["dim"]
    return picture_workload(
        tokens=tokens * size.members,
        width=dim,
        ffn_width=dim * 8 // 3,
        text=(_TEXT_TOKENS, size.geometry["cap_feat_dim"], _ENCODER_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )


Z_IMAGE: Final = ModelFamily(
    rules=RULES,
    space=FLUX,
    table=lambda _: FlowTable(3.0),
    size_multiple=16,
    runtime="inline_core.families.z_image.components",
    workload=workload,
    offers=(
        Offer(
            "alibaba/z-image-turbo",
            "Z-Image Turbo",
            takes=("image", "mask"),
            guidance="above_one",
            step=64,
            stated={"steps": 8, "guidance": 0.0},
            stated_by_variant=True,
            absent=(
                Absent("control_image", "Control", kind="control"),
                Absent("controlnet", "ControlNet", category="controlnet"),
            ),
            idle=(
                Choice("controlnet_conditioning_scale", 1.0, "Control strength", 0.0, 2.0, 0.05),
            ),
        ),
    ),
    rank=0,
)
FAMILIES: Final = (Z_IMAGE,)
