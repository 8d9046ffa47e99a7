"""Ideogram 4: two transformers, FLUX.2's VAE, a Qwen3-VL deep enough for the layers it reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    Ideogram4Pipeline,
    Ideogram4Transformer2DModel,
)

from inline_core.families.ideogram4.text import LAYERS
from tests import original_layouts, tiny, tiny_flux2
from tests.tiny_families import FamilyRun, krea2

NAME: Final = "ideogram-4"
TRANSFORMER: Final[Mapping[str, Any]] = {
    "in_channels": 128,
    "num_layers": 2,
    "attention_head_dim": 32,
    "num_attention_heads": 2,
    "intermediate_size": 96,
    "adaln_dim": 32,
    "llm_features_dim": len(LAYERS) * krea2.HIDDEN,
    "mrope_section": (3, 2, 2),
}
_OFFER: Final = "ideogram-ai/ideogram-4"
RUNS: Final = (
    FamilyRun(_OFFER, {"steps": 3, "guidance": 2.0}, same_as={"cfg": 2.0}),
    FamilyRun(
        _OFFER,
        {"steps": 2, "model": "ideogram.safetensors", "model_2": "unconditional.safetensors"},
    ),
    FamilyRun(
        _OFFER,
        {"steps": 4, "strength": 0.5, "guidance": 1.0},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
)
_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content[0].text }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def transformer(seed: int = 90) -> Ideogram4Transformer2DModel:
    """A transformer with weights big enough to move the picture; 91 is the unconditional one."""
    torch.manual_seed(seed)
    model = Ideogram4Transformer2DModel(**TRANSFORMER)
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 1.2 / parameter.shape[-1] ** 0.5 if parameter.ndim > 1 else 0.2
            base = 0.0 if parameter.ndim > 1 else parameter
            parameter.copy_(base + torch.randn_like(parameter) * spread)
    return model.eval()


def original(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As trainers of adapters call the original model's weights: q, k and v fused."""
    fused = original_layouts.fused(dict(state), ("to_q", "to_k", "to_v"), "qkv")
    return original_layouts.renamed(fused, ((r"\.to_out\.0\.", ".o."),))


def save_models(folder: Path) -> None:
    """`ideogram.safetensors`, `unconditional.safetensors`, `flux2-vae.safetensors`, `qwen3vl`."""
    for seed, name in ((90, "ideogram"), (91, "unconditional")):
        keys = original(dict(transformer(seed).state_dict()))
        tiny.save(keys, folder / f"diffusion_models/{name}.safetensors")
    tiny.save(dict(tiny_flux2.vae().state_dict()), folder / "vae/flux2-vae.safetensors")
    krea2.save_text_encoder(folder)
    tiny.settle(folder)


def pipeline() -> Any:
    """Ideogram4Pipeline; the tokenizer has the template of Qwen3-VL for lists of contents."""
    words = tiny.tokenizer()
    words.chat_template = _TEMPLATE
    return Ideogram4Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=tiny_flux2.vae(),
        text_encoder=krea2.text_encoder(),
        tokenizer=words,
        transformer=transformer(),
        unconditional_transformer=transformer(91),
    )
