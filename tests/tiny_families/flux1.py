"""FLUX.1: original-layout transformers of four variants, ae.safetensors, CLIP-L and T5 files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
)

from tests import original_layouts, tiny, tiny_encoders
from tests.tiny_families import FamilyRun

NAME: Final = "flux-1"
HIDDEN: Final = 32
CLIP: Final = 64
TRANSFORMER: Final[Mapping[str, Any]] = {
    "in_channels": 64,
    "out_channels": 64,
    "num_layers": 2,
    "num_single_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": HIDDEN,
    "pooled_projection_dim": CLIP,
    "guidance_embeds": True,
    "axes_dims_rope": (4, 6, 6),
}
# File -> what is special about it; the first by name is what a loader without a name takes.
VARIANTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "dev": {},
    "flux-canny": {"in_channels": 128},
    "flux-fill": {"in_channels": 384},
    "schnell": {"guidance_embeds": False},
}
RUNS: Final = (
    FamilyRun("black-forest-labs/flux-1", {"steps": 3}, same_as={"cfg": 1.0, "guidance": 3.5}),
    FamilyRun(
        "black-forest-labs/flux-1",
        {"steps": 2, "strength": 0.5, "model": "schnell.safetensors"},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
    FamilyRun(
        "black-forest-labs/flux-1-kontext", {"steps": 1}, size=(64, 96), images={"image": (50, 40)}
    ),
    FamilyRun(
        "black-forest-labs/flux-1-fill",
        {"steps": 2},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
    FamilyRun(
        "black-forest-labs/flux-1-control",
        {"steps": 2, "width": 0, "height": 0},
        size=(96, 64),
        images={"image": (100, 70)},
    ),
)


# Kontext brings pictures to a megapixel.
SMALLER: Final = (("inline_core.families.flux1.references.SIZES", ((64, 96), (96, 64))),)


def transformer(**changes: Any) -> FluxTransformer2DModel:
    """A transformer with weights big enough to move the picture."""
    torch.manual_seed(50)
    model = FluxTransformer2DModel(**{**TRANSFORMER, **changes})
    tiny.randomise(model, 0.2)
    return model.eval()


def vae() -> AutoencoderKL:
    """A VAE that is sure of what it encodes: pipelines that draw from it get its mode too."""
    model = tiny.vae()
    half = model.config.latent_channels
    with torch.no_grad():
        model.encoder.conv_out.weight[half:] = 0
        model.encoder.conv_out.bias[half:] = -30
    return model


def clip() -> Any:
    """CLIP-L, which pools."""
    return tiny_encoders.clip(width=CLIP)


def t5() -> Any:
    """T5 1.1."""
    return tiny_encoders.t5(width=HIDDEN)


def original_keys(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The layout of the released single files: fused qkv, shift before scale at the end."""
    made = original_layouts.flux_1(dict(state))
    for kind in ("weight", "bias"):
        last = f"final_layer.adaLN_modulation.1.{kind}"
        made[last] = torch.cat([*reversed(made[last].chunk(2))])
    return made


def save_rest(folder: Path) -> None:
    """VAE and text encoders as single files."""
    tiny.save(tiny.ldm_keys(vae().state_dict()), folder / "vae/ae.safetensors")
    tiny_encoders.save_clip_file(folder / "text_encoders/clip_l.safetensors", clip())
    tiny_encoders.save_t5_file(folder / "text_encoders/t5xxl.safetensors", t5())


def save_models(folder: Path) -> None:
    """Four single files of the transformer, and the rest."""
    for name, changes in VARIANTS.items():
        keys = original_keys(transformer(**changes).state_dict())
        tiny.save(keys, folder / f"diffusion_models/{name}.safetensors")
    save_rest(folder)
    tiny.settle(folder)


def pipeline(kind: Any = FluxPipeline, *, shifted: bool = True, **changes: Any) -> Any:
    """A pipeline of FLUX.1 with the published scheduler of dev, or of schnell."""
    return kind(
        scheduler=FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=shifted, shift=3.0 if shifted else 1.0
        ),
        vae=vae(),
        text_encoder=clip(),
        tokenizer=tiny_encoders.clip_tokenizer(),
        text_encoder_2=t5(),
        tokenizer_2=tiny_encoders.t5_tokenizer(),
        transformer=transformer(**changes),
    )
