"""OmniGen2; diffusers has no class for it."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture
from inline_core.loading.component import Role

OMNIGEN_2: Final = Architecture(
    "omnigen2",
    "OmniGen2",
    Role.DIFFUSION_MODEL,
    (
        (
            "original",
            ("time_caption_embed.timestep_embedder.linear_1.bias", "ref_image_patch_embedder.*"),
        ),
    ),
)
