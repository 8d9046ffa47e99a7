"""What Lumina-Image 2.0 is, without torch: its latent space, its schedule, its defaults."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import Workload
from inline_core.families.autoencoders.kl_spaces import FLUX
from inline_core.families.published import flux_vae, split_file, tokenizer, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.offer import Offer
from inline_core.sampling.sigmas.tables import FlowTable

_SHIFT: Final = 6.0  # of the published scheduler
_REPO: Final = "Comfy-Org/Lumina_Image_2.0_Repackaged"
_TEXT_FILE: Final = "gemma_2_2b_fp16"

RULES: Final = FamilyRules(
    name="lumina2",
    label="Lumina 2",
    vae_family="autoencoder-kl",
    latent_channels=FLUX.channels,
    vae_words=FLUX.words,
    text_encoders=(EncoderNeed("gemma2"),),
    defaults=MappingProxyType({"": {"width": 1024, "height": 1024, "steps": 30, "guidance": 4.0}}),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            split_file(Role.DIFFUSION_MODEL, _REPO, "lumina_2_model_bf16.safetensors"),
            5_220_000_000,
        ),
        flux_vae(),
        weights(
            Role.TEXT_ENCODER,
            split_file(Role.TEXT_ENCODER, _REPO, f"{_TEXT_FILE}.safetensors"),
            5_230_000_000,
        ),
        tokenizer("Alpha-VLLM/Lumina-Image-2.0", _TEXT_FILE, 34_400_000, part="tokenizer"),
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
    space=FLUX,
    table=lambda _: FlowTable(_SHIFT),
    size_multiple=16,
    runtime="inline_core.families.lumina2.components",
    workload=workload,
    offers=(Offer("alpha-vllm/lumina-image-2", "Lumina Image 2", takes=("image", "mask")),),
)
FAMILIES: Final = (LUMINA_2,)
