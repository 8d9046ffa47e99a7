"""Lumina 2: an original-layout transformer, FLUX.1's VAE, a Gemma 2 folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    Lumina2Pipeline,
    Lumina2Transformer2DModel,
)
from transformers import Gemma2Config, Gemma2Model

from tests import original_layouts, tiny
from tests.tiny_families import FamilyRun

NAME: Final = "lumina2"
HIDDEN: Final = 32
TRANSFORMER: Final[Mapping[str, Any]] = {
    "in_channels": 16,
    "hidden_size": 48,
    "num_layers": 2,
    "num_refiner_layers": 1,
    "num_attention_heads": 4,
    "num_kv_heads": 2,
    "axes_dim_rope": (4, 4, 4),
    "cap_feat_dim": HIDDEN,
}
RUNS: Final = (
    FamilyRun("alpha-vllm/lumina-image-2", {"steps": 3}, same_as={"cfg": 4.0}),
    FamilyRun(
        "alpha-vllm/lumina-image-2",
        {"steps": 4, "strength": 0.5, "guidance": 1.0},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
)


def transformer() -> Lumina2Transformer2DModel:
    """A transformer with weights big enough to move the picture."""
    torch.manual_seed(20)
    model = Lumina2Transformer2DModel(**TRANSFORMER)
    tiny.randomise(model, 0.25)
    return model.eval()


def text_encoder() -> Gemma2Model:
    """A Gemma 2 of three layers."""
    torch.manual_seed(21)
    config = Gemma2Config(
        vocab_size=272,
        hidden_size=HIDDEN,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=256,
        pad_token_id=0,
        eos_token_id=0,
        bos_token_id=0,
    )
    model = Gemma2Model(config)
    tiny.randomise(model, 0.15)
    return model.eval()


def original_keys() -> dict[str, torch.Tensor]:
    """The layout of the released single file."""
    model = transformer()
    made = original_layouts.lumina_2(dict(model.state_dict()))
    made["norm_final.weight"] = torch.ones(TRANSFORMER["hidden_size"])
    return made


def save_models(folder: Path) -> None:
    """`lumina.safetensors`, `ae.safetensors` and the encoder folder `gemma`."""
    tiny.save(original_keys(), folder / "diffusion_models/lumina.safetensors")
    keys = tiny.ldm_keys(tiny.vae().state_dict())
    tiny.save(keys, folder / "vae/ae.safetensors", tiny.vae_metadata())
    encoder = folder / "text_encoders/gemma"
    text_encoder().save_pretrained(encoder)
    tiny.tokenizer().save_pretrained(encoder)
    tiny.settle(folder)


def pipeline() -> Any:
    """Lumina2Pipeline with the published scheduler."""
    return Lumina2Pipeline(
        transformer=transformer(),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=6.0),
        vae=tiny.vae(),
        text_encoder=text_encoder(),
        tokenizer=tiny.tokenizer(),
    )
