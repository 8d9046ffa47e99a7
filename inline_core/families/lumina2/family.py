"""What Lumina-Image 2.0 is, without torch: its latent space, its schedule, its defaults."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import Workload
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules, RequiredFile, Requirement
from inline_core.sampling.family import LatentSpace, ModelFamily, PassSize
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.offer import Offer
from inline_core.sampling.sigmas.tables import FlowTable

# The VAE of FLUX.1, used as it is; scaling and shift are from its published config.
SPACE: Final = LatentSpace("flux", channels=16, factor=8, scaling=0.3611, shift=0.1159)
_SHIFT: Final = 6.0  # of the published scheduler
_REPO: Final = "Alpha-VLLM/Lumina-Image-2.0"

RULES: Final = FamilyRules(
    name="lumina2",
    label="Lumina 2",
    vae_family="autoencoder-kl",
    latent_channels=SPACE.channels,
    vae_names=("ae", "flux"),
    text_encoders=(EncoderNeed("gemma2"),),
    defaults=MappingProxyType({"": {"width": 1024, "height": 1024, "steps": 30, "guidance": 4.0}}),
    requirements=(
        Requirement(
            id="diffusion",
            label="Diffusion model",
            category="diffusion_models",
            role=Role.DIFFUSION_MODEL,
            files=tuple(
                RequiredFile(_REPO, f"transformer/{name}", f"lumina-image-2/{name}")
                for name in (
                    "config.json",
                    "diffusion_pytorch_model.safetensors.index.json",
                    "diffusion_pytorch_model-00001-of-00002.safetensors",
                    "diffusion_pytorch_model-00002-of-00002.safetensors",
                )
            ),
            size_bytes=10_440_000_000,
        ),
    ),
)

_PATCH_PIXELS: Final = 16  # latent factor 8, patches of 2
_TEXT_TOKENS: Final = 256
_ENCODER_LAYERS: Final = 26  # of Gemma 2 2B


def workload(size: PassSize) -> Workload:
    """Picture and text tokens go through the same blocks; their feed-forward is 4 wide."""
    tokens = (size.width // _PATCH_PIXELS) * (size.height // _PATCH_PIXELS) + _TEXT_TOKENS
    width = size.geometry["hidden_size"]
    return picture_workload(
        tokens=tokens * size.members,
        width=width,
        ffn_width=4 * width,
        text=(_TEXT_TOKENS, size.geometry["cap_feat_dim"], _ENCODER_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )


LUMINA_2: Final = ModelFamily(
    rules=RULES,
    space=SPACE,
    table=lambda _: FlowTable(_SHIFT),
    size_multiple=16,
    runtime="inline_core.families.lumina2.components",
    workload=workload,
    offers=(Offer("alpha-vllm/lumina-image-2", "Lumina Image 2", takes=("image", "mask")),),
)
FAMILIES: Final = (LUMINA_2,)
