"""Stable Diffusion 3.5: an original-layout transformer, its VAE, CLIP-L, CLIP-G and T5 files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)

from tests import original_layouts, tiny, tiny_encoders
from tests.tiny_families import FamilyRun

NAME: Final = "sd3"
HIDDEN: Final = 192
CLIP_L: Final = 64
CLIP_G: Final = 128
TRANSFORMER: Final[Mapping[str, Any]] = {
    "num_layers": 3,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": HIDDEN,
    "caption_projection_dim": 32,
    "pooled_projection_dim": CLIP_L + CLIP_G,
    "pos_embed_max_size": 12,
    "dual_attention_layers": (0,),
    "qk_norm": "rms_norm",
}
RUNS: Final = (
    FamilyRun(
        "stabilityai/stable-diffusion-3",
        {"steps": 3},
        same_as={"cfg": 4.5, "scheduler": "normal"},
    ),
    FamilyRun(
        "stabilityai/stable-diffusion-3",
        {"steps": 4, "strength": 0.5, "guidance": 1.0},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
)


def transformer() -> SD3Transformer2DModel:
    """A transformer with positions that nobody can compute."""
    torch.manual_seed(70)
    model = SD3Transformer2DModel(**TRANSFORMER)
    tiny.randomise(model, 0.2)
    model.pos_embed.pos_embed.copy_(torch.randn(model.pos_embed.pos_embed.shape) * 0.5)
    return model.eval()


def vae() -> AutoencoderKL:
    """The VAE of SD3: FLUX.1's shapes, another scaling."""
    return tiny.vae(scaling_factor=1.5305, shift_factor=0.0609)


def clip_l() -> Any:
    """CLIP-L with its projection."""
    return tiny_encoders.clip(width=CLIP_L, projected=True, layers=3)


def clip_g() -> Any:
    """CLIP-G, whose tokenizer pads with "!"."""
    return tiny_encoders.clip(43, CLIP_G, projected=True, layers=3)


def t5() -> Any:
    """T5 1.1."""
    return tiny_encoders.t5(width=HIDDEN)


def original_keys(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The layout of the released single files: shift before scale where diffusers swaps them."""
    made = original_layouts.sd3(dict(state))
    last = f"joint_blocks.{TRANSFORMER['num_layers'] - 1}.context_block"
    for module in ("final_layer", last):
        for kind in ("weight", "bias"):
            name = f"{module}.adaLN_modulation.1.{kind}"
            made[name] = torch.cat([*reversed(made[name].chunk(2))])
    return made


def save_models(folder: Path, *, with_t5: bool = True) -> None:
    """`sd3.5.safetensors`, `sd3_vae.safetensors` and the text encoders as single files."""
    keys = original_keys(transformer().state_dict())
    tiny.save(keys, folder / "diffusion_models/sd3.5.safetensors")
    tiny.save(tiny.ldm_keys(vae().state_dict()), folder / "vae/sd3_vae.safetensors")
    encoders = folder / "text_encoders"
    tiny_encoders.save_clip_file(encoders / "clip_l.safetensors", clip_l())
    tiny_encoders.save_clip_file(encoders / "clip_g.safetensors", clip_g(), "!")
    if with_t5:
        tiny_encoders.save_t5_file(encoders / "t5xxl.safetensors", t5())
    tiny.settle(folder)


def pipeline(**changes: Any) -> Any:
    """StableDiffusion3Pipeline with the published scheduler."""
    parts: dict[str, Any] = {
        "transformer": transformer(),
        "scheduler": FlowMatchEulerDiscreteScheduler(shift=3.0),
        "vae": vae(),
        "text_encoder": clip_l(),
        "tokenizer": tiny_encoders.clip_tokenizer(),
        "text_encoder_2": clip_g(),
        "tokenizer_2": tiny_encoders.clip_tokenizer("!"),
        "text_encoder_3": t5(),
        "tokenizer_3": tiny_encoders.t5_tokenizer(),
    }
    return StableDiffusion3Pipeline(**{**parts, **changes})
