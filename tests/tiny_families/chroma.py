"""Chroma: an original-layout transformer, ae.safetensors, a T5 file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import ChromaPipeline, ChromaTransformer2DModel, FlowMatchEulerDiscreteScheduler

from tests import original_layouts, tiny, tiny_encoders
from tests.tiny_families import FamilyRun

NAME: Final = "chroma"
HIDDEN: Final = 32
TRANSFORMER: Final[Mapping[str, Any]] = {
    "in_channels": 64,
    "num_layers": 1,
    "num_single_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": HIDDEN,
    "axes_dims_rope": (4, 6, 6),
    "approximator_hidden_dim": 24,
    "approximator_layers": 2,
}
RUNS: Final = (
    FamilyRun("lodestones/chroma", {"steps": 3}, same_as={"cfg": 3.0}),
    FamilyRun(
        "lodestones/chroma",
        {"steps": 4, "strength": 0.5, "guidance": 1.0},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
)


def transformer() -> ChromaTransformer2DModel:
    """A transformer with weights big enough to move the picture."""
    torch.manual_seed(60)
    model = ChromaTransformer2DModel(**TRANSFORMER)
    tiny.randomise(model, 0.2)
    return model.eval()


def t5() -> Any:
    """T5 1.1."""
    return tiny_encoders.t5(width=HIDDEN)


def save_models(folder: Path) -> None:
    """`chroma.safetensors`, `ae.safetensors` and `t5xxl.safetensors`."""
    keys = original_layouts.flux_1(dict(transformer().state_dict()))
    tiny.save(keys, folder / "diffusion_models/chroma.safetensors")
    tiny.save(tiny.ldm_keys(tiny.vae().state_dict()), folder / "vae/ae.safetensors")
    tiny_encoders.save_t5_file(folder / "text_encoders/t5xxl.safetensors", t5())
    tiny.settle(folder)


class MaskingPipeline(ChromaPipeline):  # type: ignore[misc]  # diffusers is untyped
    """ChromaPipeline with a mask of bool, as the model was trained.

    Its own, of 1.0 and 0.0, is added to the attention and leaves nothing out.
    """

    def _prepare_attention_mask(self, *args: Any, **kwargs: Any) -> Any:
        return super()._prepare_attention_mask(*args, **kwargs).bool()


def pipeline() -> Any:
    """ChromaPipeline with a schedule that grows with the picture."""
    return MaskingPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=tiny.vae(),
        text_encoder=t5(),
        tokenizer=tiny_encoders.t5_tokenizer(),
        transformer=transformer(),
    )
