"""What Z-Image is, without torch: its latent space, its schedule, its variants' defaults."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from inline_core.loading.component import Role
from inline_core.loading.rules import FamilyRules
from inline_core.sampling.family import LatentSpace, ModelFamily

# The VAE of FLUX.1, used as it is; scaling and shift are from its published config.
FLUX_SPACE: Final = LatentSpace("flux", channels=16, factor=8, scaling=0.3611, shift=0.1159)


def _defaults(side: int, guidance: float = 0.0) -> dict[str, Any]:
    """Params of a variant; guidance 0 means none, as the distilled models want it."""
    return {"width": side, "height": side, "steps": 8, "guidance": guidance, "shift": 3.0}


RULES: Final = FamilyRules(
    name="z-image",
    label="Z-Image",
    vae_family="autoencoder-kl",
    latent_channels=FLUX_SPACE.channels,
    text_encoder_family="qwen3",
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
)

Z_IMAGE: Final = ModelFamily(
    rules=RULES,
    space=FLUX_SPACE,
    schedule_shift=3.0,
    size_multiple=16,
    runtime="inline_core.families.z_image.components",
)
