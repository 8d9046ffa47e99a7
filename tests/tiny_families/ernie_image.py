"""ERNIE-Image: a transformer file, FLUX.2's VAE, a Ministral 3."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    ErnieImagePipeline,
    ErnieImageTransformer2DModel,
    FlowMatchEulerDiscreteScheduler,
)
from transformers import Ministral3Config, Ministral3Model

from tests import tiny, tiny_flux2
from tests.tiny_families import FamilyRun

NAME: Final = "ernie-image"
HIDDEN: Final = 16
TRANSFORMER: Final[Mapping[str, Any]] = {
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_layers": 2,
    "ffn_hidden_size": 48,
    "text_in_dim": HIDDEN,
    "rope_axes_dim": (4, 6, 6),
}
RUNS: Final = (
    FamilyRun("baidu/ernie-image", {"steps": 3}, same_as={"cfg": 4.0}),
    FamilyRun(
        "baidu/ernie-image",
        {"steps": 4, "strength": 0.5, "guidance": 1.0},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
)


def transformer(**changes: Any) -> ErnieImageTransformer2DModel:
    """A transformer with weights big enough to move the picture."""
    torch.manual_seed(110)
    model = ErnieImageTransformer2DModel(**{**TRANSFORMER, **changes})
    tiny.randomise(model, 0.25)
    return model.eval()


def text_encoder(width: int = HIDDEN) -> Ministral3Model:
    """A Ministral 3 of three layers with the real vocabulary, which tells these files."""
    torch.manual_seed(111)
    config = Ministral3Config(
        hidden_size=width,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=128,
    )
    model = Ministral3Model(config)
    tiny.randomise(model, 0.15)
    return model.eval()


def save_models(folder: Path) -> None:
    """`ernie.safetensors`, `flux2-vae.safetensors` and `ministral.safetensors`."""
    keys = {f"model.diffusion_model.{n}": t for n, t in transformer().state_dict().items()}
    tiny.save(keys, folder / "diffusion_models/ernie.safetensors")
    keys = tiny_flux2.vae_keys(tiny_flux2.vae().state_dict())
    tiny.save(keys, folder / "vae/flux2-vae.safetensors")
    encoders = folder / "text_encoders"
    keys = {f"model.{n}": t for n, t in text_encoder().state_dict().items()}
    tiny.save(keys, encoders / "ministral.safetensors")
    tiny_flux2.mistral_tokenizer().save_pretrained(encoders / "ministral.tokenizer")
    tiny.settle(folder)


def pipeline(**changes: Any) -> Any:
    """ErnieImagePipeline without its prompt enhancer."""
    width = changes.get("text_in_dim", HIDDEN)
    return ErnieImagePipeline(
        transformer=transformer(**changes),
        vae=tiny_flux2.vae(),
        text_encoder=text_encoder(width),
        tokenizer=tiny_flux2.mistral_tokenizer(),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=4.0),
    )
