"""Bria FIBO 2: a transformer file, FLUX.2's VAE, a Qwen3-VL deep enough for the layers it reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    BriaFibo2Pipeline,
    BriaFibo2Transformer2DModel,
    FlowMatchEulerDiscreteScheduler,
)
from transformers import Qwen3VLForConditionalGeneration

from inline_core.families.text_encoders.qwen3_vl_pictures import PUBLISHED_PIXELS
from tests import tiny, tiny_encoders, tiny_flux2
from tests.tiny_families import FamilyRun, qwen_image, qwen_image_21

NAME: Final = "bria-fibo-2"
HIDDEN: Final = 16
TRANSFORMER: Final[Mapping[str, Any]] = {
    "in_channels": 32,
    "dim": 64,
    "n_layers": 6,
    "n_refiner_layers": 1,
    "n_heads": 2,
    "cap_feat_dim": 3 * HIDDEN,
    "injection_layer_ids": (1, 2, 3, 4, 5),
    "perceiver_num_layers": 1,
    "axes_dims": (8, 12, 12),
}
SMALLER: Final = (("inline_core.families.bria_fibo2.pictures.AREA", 128 * 128),)
RUNS: Final = (
    FamilyRun("briaai/fibo-2", {"steps": 3, "guidance": 1.0}, same_as={"cfg": 1.0}),
    FamilyRun(
        "briaai/fibo-2",
        {"steps": 4, "strength": 0.5, "guidance": 1.0},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
    FamilyRun("briaai/fibo-2-edit", {"steps": 1}, images={"image": (64, 64)}),
)


def transformer() -> BriaFibo2Transformer2DModel:
    """A transformer whose gates are open."""
    torch.manual_seed(120)
    model = BriaFibo2Transformer2DModel(**TRANSFORMER)
    tiny.randomise(model, 0.2)
    with torch.no_grad():
        for block in model.layers:
            if block.cross_attention is not None:
                block.cross_attn_gate.fill_(0.7)
        model.perceiver.latent_queries.mul_(10)
    return model.eval()


def text_encoder() -> Qwen3VLForConditionalGeneration:
    """A Qwen3-VL of 36 layers, and a tower of one."""
    torch.manual_seed(121)
    named = qwen_image.tokenizer().convert_tokens_to_ids
    ids = {f"{name}_token_id": named(f"<|{name}_pad|>") for name in ("image", "video")}
    config = tiny_encoders.qwen3_vl_config(HIDDEN, inner=32, layers=36, blocks=1, **ids)
    model = Qwen3VLForConditionalGeneration(config)
    tiny.randomise(model, 0.15)
    return model.eval()


def save_models(folder: Path) -> None:
    """`fibo2.safetensors`, `flux2-vae.safetensors` and the encoder folder `qwen3vl-4b`."""
    keys = {f"model.diffusion_model.{n}": t for n, t in transformer().state_dict().items()}
    tiny.save(keys, folder / "diffusion_models/fibo2.safetensors")
    keys = tiny_flux2.vae_keys(tiny_flux2.vae().state_dict())
    tiny.save(keys, folder / "vae/flux2-vae.safetensors")
    target = folder / "text_encoders/qwen3vl-4b"
    text_encoder().save_pretrained(target)
    qwen_image.tokenizer().save_pretrained(target)
    tiny.settle(folder)


def pipeline() -> Any:
    """BriaFibo2Pipeline with the scheduler of diffusers' defaults."""
    words = qwen_image.tokenizer()
    return BriaFibo2Pipeline(
        transformer=transformer(),
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=tiny_flux2.vae(),
        text_encoder=text_encoder(),
        processor=qwen_image_21.Processor(words, PUBLISHED_PIXELS),
    )
