"""What the models folder must know about a family to pick and match its pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from inline_core.loading.component import Role

CATEGORIES: Final = (
    "diffusion_models",
    "checkpoints",
    "vae",
    "text_encoders",
    "loras",
    "clip_vision",
    "controlnet",
    "upscale_models",
    "latent_upscale_models",
    "model_patches",
    "embeddings",
    "annotators",
    "characters",
)
CATEGORY_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {"unet": "diffusion_models", "clip": "text_encoders"}
)
CATEGORIES_OF_ROLE: Final[Mapping[Role, tuple[str, ...]]] = MappingProxyType(
    {
        Role.DIFFUSION_MODEL: ("diffusion_models", "checkpoints"),
        Role.VAE: ("vae",),
        Role.TEXT_ENCODER: ("text_encoders",),
        Role.LORA: ("loras",),
        Role.CONTROLNET: ("controlnet", "model_patches"),
        Role.CHECKPOINT: ("checkpoints",),
        Role.CLIP_VISION: ("clip_vision",),
        Role.UPSCALER: ("upscale_models",),
    }
)
ROLE_IN_WORDS: Final[Mapping[Role, str]] = MappingProxyType(
    {
        Role.DIFFUSION_MODEL: "a diffusion model",
        Role.VAE: "a VAE",
        Role.TEXT_ENCODER: "a text encoder",
        Role.LORA: "a LoRA",
        Role.CONTROLNET: "a ControlNet",
        Role.CHECKPOINT: "a checkpoint",
        Role.CLIP_VISION: "a CLIP vision model",
        Role.UPSCALER: "an upscaler",
        Role.UNKNOWN: "a model",
    }
)


def roles_of(category: str) -> frozenset[Role] | None:
    """The roles that may be offered in a category; None for categories that nobody identifies."""
    roles = frozenset(
        role for role, categories in CATEGORIES_OF_ROLE.items() if category in categories
    )
    known = roles & {Role.DIFFUSION_MODEL, Role.VAE, Role.TEXT_ENCODER, Role.LORA}
    return roles if known else None


@dataclass(frozen=True, slots=True)
class FamilyRules:
    """How the pieces of one family are recognised, matched and overridden.

    `vae_family`, `latent_channels` and `text_encoder_family` say which files fit; `defaults` gives
    the params of each variant; `overrides` names the `INLINE_*` variable and its value by role.
    """

    name: str
    label: str
    vae_family: str
    latent_channels: int
    text_encoder_family: str
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    settings_fields: Mapping[Role, str] = field(default_factory=dict)
