"""Ovis-Image: a diffusers folder, FLUX.1's VAE, a Qwen3 folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    OvisImagePipeline,
    OvisImageTransformer2DModel,
)

from inline_core.families.ovis_image.text import words_before
from tests import tiny
from tests.tiny_families import FamilyRun

NAME: Final = "ovis-image"
TRANSFORMER: Final[Mapping[str, Any]] = {
    "in_channels": 64,
    "out_channels": 64,
    "num_layers": 1,
    "num_single_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": tiny.CAP_FEAT_DIM,
    "axes_dims_rope": (4, 6, 6),
}
RUNS: Final = (
    FamilyRun("aidc-ai/ovis-image", {"steps": 3}, same_as={"cfg": 5.0}),
    FamilyRun(
        "aidc-ai/ovis-image",
        {"steps": 4, "strength": 0.5, "guidance": 1.0},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
)


def transformer() -> OvisImageTransformer2DModel:
    """A transformer with weights big enough to move the picture."""
    torch.manual_seed(70)
    model = OvisImageTransformer2DModel(**TRANSFORMER)
    tiny.randomise(model, 0.25)
    return model.eval()


def save_models(folder: Path) -> None:
    """The folder `ovis`, `ae.safetensors` and the encoder folder `qwen`."""
    transformer().save_pretrained(folder / "diffusion_models/ovis")
    keys = tiny.ldm_keys(tiny.vae().state_dict())
    tiny.save(keys, folder / "vae/ae.safetensors", tiny.vae_metadata())
    tiny.save_text_encoder_folder(folder / "text_encoders/qwen")
    tiny.settle(folder)


def pipeline() -> Any:
    """OvisImagePipeline; the length of its template is that of the test's tokenizer."""
    pipe = OvisImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=tiny.vae(),
        text_encoder=tiny.text_encoder(),
        tokenizer=tiny.tokenizer(),
        transformer=transformer(),
    )
    pipe.user_prompt_begin_id = words_before(tiny.tokenizer())
    return pipe
