"""What Stable Diffusion 3 is, without torch: its latent space, its schedule, its variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from inline_core.devices.budget import Workload
from inline_core.errors import InvalidParam
from inline_core.families.autoencoders.kl_spaces import SD3 as SPACE
from inline_core.families.published import clip_g, clip_l, folder, t5_xxl, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules, Sizes
from inline_core.sampling.family import ModelFamily, PassSize
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.job import SampleJob
from inline_core.sampling.offer import Offer, Told
from inline_core.sampling.sigmas.tables import FlowTable

_SHIFT: Final = 3.0  # of the published scheduler
_REPO: Final = "stabilityai/stable-diffusion-3.5-medium"
# Shapes do not tell it from 3.5 Large: who runs it says so.
_TURBO: Final = "3.5-large-turbo"


def _defaults(steps: int, guidance: float) -> dict[str, Any]:
    """Params of a variant; guidance 1 means none."""
    return {"width": 1024, "height": 1024, "steps": steps, "guidance": guidance}


_CLIP_L: Final = EncoderNeed("clip", "l", size_of="")
_CLIP_G: Final = EncoderNeed("clip", "g", size_of="")
_T5: Final = EncoderNeed("t5", size_of="joint_attention_dim", optional=True)


def _encoders_fit(model: Sizes, encoders: Sequence[Sizes]) -> bool:
    """What stands for the whole prompt comes from both CLIPs, the narrower one first."""
    first, second = (sizes["hidden_size"] for sizes in encoders[:2])
    return first <= second and first + second == model["pooled_projection_dim"]


RULES: Final = FamilyRules(
    name="sd3",
    label="Stable Diffusion 3",
    vae_family="autoencoder-kl",
    latent_channels=SPACE.channels,
    vae_words=SPACE.words,
    text_encoders=(_CLIP_L, _CLIP_G, _T5),
    encoders_fit=_encoders_fit,
    # Of the cards of the models.
    defaults=MappingProxyType(
        {
            "3.5-medium": _defaults(40, 4.5),
            "3.5-large": _defaults(28, 3.5),
            _TURBO: _defaults(4, 1.0),
            "3-medium": _defaults(28, 7.0),
        }
    ),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            folder(_REPO, "transformer", "sd3.5-medium"),
            4_940_000_000,
            of="3.5 Medium",
        ),
        weights(Role.VAE, folder(_REPO, "vae", "sd3.5-medium"), 168_000_000),
        *clip_l(_CLIP_L),
        *clip_g(_CLIP_G),
        *t5_xxl(_T5, 3),
    ),
)

_PATCH_PIXELS: Final = 16  # latent factor 8, patches of 2
_CLIP_TOKENS: Final = 77
_T5_TOKENS: Final = 256
_T5_LAYERS: Final = 24


def workload(size: PassSize) -> Workload:
    """Picture and text have weights of their own and one attention."""
    geometry = size.geometry
    tokens = (size.width // _PATCH_PIXELS) * (size.height // _PATCH_PIXELS)
    tokens += _CLIP_TOKENS + _T5_TOKENS
    width = geometry["num_attention_heads"] * geometry["attention_head_dim"]
    return picture_workload(
        tokens=tokens * size.members,
        width=width,
        ffn_width=4 * width,
        text=(_T5_TOKENS, geometry["joint_attention_dim"], _T5_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )


def check(job: SampleJob, geometry: Mapping[str, int]) -> None:
    """Raise InvalidParam if the picture is larger than the model's table of positions."""
    most = geometry["pos_embed_max_size"] * _PATCH_PIXELS
    for name in ("width", "height"):
        value = getattr(job.latent, name)
        if value > most:
            message = f"{name} is {value}: {job.model.name} has positions for {most} pixels at most"
            raise InvalidParam(message, param=name)


SD3: Final = ModelFamily(
    rules=RULES,
    space=SPACE,
    table=lambda _: FlowTable(_SHIFT),
    size_multiple=_PATCH_PIXELS,
    runtime="inline_core.families.sd3.components",
    workload=workload,
    check=check,
    offers=(
        Offer(
            "stabilityai/stable-diffusion-3",
            "Stable Diffusion 3.5",
            takes=("image", "mask"),
            told=(Told(_TURBO, "3.5 Large Turbo", "3.5-large"),),
            # What the pipeline lays its steps out with.
            scheduler="normal",
        ),
    ),
)
FAMILIES: Final = (SD3,)
