"""Every architecture that files are recognised as, from the most telling names to the least.

Those of a new family may lie in its own folder (`inline_core/families/<name>/architecture.py` with
`ARCHITECTURES`): they are tried before the ones below, so their keys must tell them for sure.
"""

from __future__ import annotations

from typing import Final

from inline_core.discovery import submodules
from inline_core.loading.architectures.ace_step import ACE_STEP, ACE_STEP_1
from inline_core.loading.architectures.architecture import Architecture
from inline_core.loading.architectures.audio import (
    AUTOENCODER_LTX_2_AUDIO,
    AUTOENCODER_MINIMAX_H3_AUDIO,
    LTX_2_VOCODER,
    LTX_2_VOCODER_ORIGINAL,
    LTX_2_VOCODER_WITH_EXTENSION,
    OOBLECK,
    OOBLECK_ORIGINAL,
)
from inline_core.loading.architectures.clip import (
    CLIP,
    CLIP_VISION,
    CLIP_VISION_WITH_PROJECTION,
    CLIP_WITH_PROJECTION,
    OPEN_CLIP,
    SIGLIP_VISION,
)
from inline_core.loading.architectures.controlnet import (
    FLUX_1_CONTROLNET,
    OTHER_CONTROLNET,
    SD3_CONTROLNET,
    UPSCALERS,
)
from inline_core.loading.architectures.decoders import DECODERS, OTHER_DECODER
from inline_core.loading.architectures.flux_1 import CHROMA, CHROMA_RADIANCE, FLUX_1
from inline_core.loading.architectures.flux_2 import FLUX_2
from inline_core.loading.architectures.hunyuan_vae import (
    AUTOENCODER_HUNYUAN_VIDEO,
    AUTOENCODER_HUNYUAN_VIDEO_1_5,
    AUTOENCODER_MINIMAX_H3,
)
from inline_core.loading.architectures.hunyuan_video import HUNYUAN_VIDEO, HUNYUAN_VIDEO_1_5
from inline_core.loading.architectures.image_vae import (
    AUTOENCODER_KL,
    AUTOENCODER_KL_FLUX_2,
    AUTOENCODER_TINY,
    AUTOENCODER_TINY_HALF,
)
from inline_core.loading.architectures.krea_2 import KREA_2
from inline_core.loading.architectures.ltx import (
    LTX_2,
    LTX_2_5,
    LTX_2_CONNECTORS,
    LTX_VIDEO,
)
from inline_core.loading.architectures.ltx_vae import AUTOENCODER_LTX_2, AUTOENCODER_LTX_VIDEO
from inline_core.loading.architectures.ltx_video_decoder import LTX_2_5_VIDEO_DECODER
from inline_core.loading.architectures.lumina_2 import LUMINA_2
from inline_core.loading.architectures.minimax_h3 import MINIMAX_H3
from inline_core.loading.architectures.omnigen_2 import OMNIGEN_2
from inline_core.loading.architectures.qwen_image import (
    QWEN_IMAGE,
    QWEN_IMAGE_2_1,
    QWEN_IMAGE_CONTROLNET,
    QWEN_IMAGE_PATCH,
)
from inline_core.loading.architectures.sd3 import SD3
from inline_core.loading.architectures.stable_diffusion import CONTROLNETS, STABLE_DIFFUSION
from inline_core.loading.architectures.t5 import BYT5, T5, UMT5
from inline_core.loading.architectures.wan import (
    WAN,
    WAN_5B,
    WAN_ANIMATE,
    WAN_FUN,
    WAN_OTHERS,
    WAN_VACE,
)
from inline_core.loading.architectures.wan_vae import (
    AUTOENCODER_QWEN_IMAGE_2_1,
    AUTOENCODER_WAN,
)
from inline_core.loading.architectures.z_image import Z_IMAGE, Z_IMAGE_CONTROLNET
from inline_core.loading.component import Role

# Prefixes that wrap a whole model, the first one that is there counts.
DIFFUSION_PREFIXES: Final = ("model.diffusion_model.", "diffusion_model.", "transformer.")
CONTROL_PREFIXES: Final = ("control_model.",)
VAE_PREFIXES: Final = ("first_stage_model.", "vae.", "audio_vae.")


def _of_families(*roles: Role) -> tuple[Architecture, ...]:
    """What families bring in their own folders."""
    modules = submodules("inline_core.families", "architecture")
    found = [item for module in modules for item in module.ARCHITECTURES]
    return tuple(item for item in found if item.role in roles)


CONTROL: Final = (
    *_of_families(Role.CONTROLNET, Role.MODEL_PATCH),
    Z_IMAGE_CONTROLNET,
    QWEN_IMAGE_CONTROLNET,
    QWEN_IMAGE_PATCH,
    FLUX_1_CONTROLNET,
    SD3_CONTROLNET,
    *CONTROLNETS,
)
DIFFUSION_MODELS: Final = (
    *_of_families(Role.DIFFUSION_MODEL),
    Z_IMAGE,
    LUMINA_2,
    KREA_2,
    HUNYUAN_VIDEO_1_5,  # before FLUX.1, whose names ComfyUI has for its blocks
    CHROMA_RADIANCE,
    CHROMA,
    FLUX_2,
    FLUX_1,
    QWEN_IMAGE,
    QWEN_IMAGE_2_1,
    WAN_VACE,
    WAN_ANIMATE,
    *WAN_OTHERS,
    *WAN_FUN,
    WAN_5B,
    WAN,
    LTX_2_5,
    LTX_2,
    LTX_VIDEO,
    HUNYUAN_VIDEO,
    MINIMAX_H3,
    OMNIGEN_2,
    SD3,
    ACE_STEP,
    ACE_STEP_1,
    *STABLE_DIFFUSION,
)
VAES: Final = (
    *_of_families(Role.VAE, Role.AUDIO_VAE),
    LTX_2_5_VIDEO_DECODER,
    AUTOENCODER_MINIMAX_H3,
    AUTOENCODER_MINIMAX_H3_AUDIO,
    AUTOENCODER_QWEN_IMAGE_2_1,
    AUTOENCODER_WAN,
    AUTOENCODER_LTX_2_AUDIO,
    AUTOENCODER_HUNYUAN_VIDEO_1_5,
    AUTOENCODER_HUNYUAN_VIDEO,
    AUTOENCODER_LTX_2,
    AUTOENCODER_LTX_VIDEO,
    AUTOENCODER_KL_FLUX_2,
    AUTOENCODER_KL,
    OOBLECK,
    OOBLECK_ORIGINAL,
    AUTOENCODER_TINY,
    AUTOENCODER_TINY_HALF,
)
OTHERS: Final = (
    *_of_families(Role.TEXT_ENCODER, Role.CLIP_VISION),
    UMT5,
    BYT5,
    T5,
    CLIP_WITH_PROJECTION,
    CLIP,
    OPEN_CLIP,
    CLIP_VISION_WITH_PROJECTION,
    CLIP_VISION,
    SIGLIP_VISION,
    *DECODERS,
    OTHER_DECODER,
    LTX_2_CONNECTORS,
    LTX_2_VOCODER_WITH_EXTENSION,
    LTX_2_VOCODER,
    LTX_2_VOCODER_ORIGINAL,
    *UPSCALERS,
    OTHER_CONTROLNET,
)
# Language models, whose names start in several ways.
DECODER_FAMILIES: Final = frozenset(found.family for found in (*DECODERS, OTHER_DECODER))
ALL: Final[tuple[Architecture, ...]] = (*CONTROL, *DIFFUSION_MODELS, *VAES, *OTHERS)


def name_of(family: str) -> str:
    """The name for people of a family (`sdxl` -> `SDXL`); "" if there is none."""
    names = [found.name for found in DIFFUSION_MODELS if found.family == family]
    return min(names, key=len, default="")
