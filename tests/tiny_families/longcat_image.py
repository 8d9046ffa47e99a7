"""LongCat-Image: a transformer file, FLUX.1's VAE, Qwen2.5-VL with a tower."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    LongCatImageEditPipeline,
    LongCatImagePipeline,
    LongCatImageTransformer2DModel,
)
from transformers import Qwen2VLImageProcessorPil

from tests import original_layouts, tiny
from tests.tiny_families import FamilyRun, qwen_image

NAME: Final = "longcat-image"
TRANSFORMER: Final[Mapping[str, Any]] = {
    "in_channels": 64,
    "num_layers": 1,
    "num_single_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": qwen_image.HIDDEN,
    "axes_dims_rope": (4, 6, 6),
}
SMALLER: Final = (("inline_core.families.longcat_image.pictures.REFERENCE_PIXELS", 128 * 128),)
RUNS: Final = (
    FamilyRun("meituan/longcat-image", {"steps": 3, "guidance": 1.0}, same_as={"cfg": 1.0}),
    FamilyRun(
        "meituan/longcat-image",
        {"steps": 4, "strength": 0.5},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
    FamilyRun("meituan/longcat-image-edit", {"steps": 1}, images={"image": (64, 64)}),
)


def transformer() -> LongCatImageTransformer2DModel:
    """A transformer with weights big enough to move the picture."""
    torch.manual_seed(100)
    model = LongCatImageTransformer2DModel(**TRANSFORMER)
    tiny.randomise(model, 0.25)
    return model.eval()


def original(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """With the names that FLUX.1's original has for the same blocks, and shift before scale."""
    named = {
        name.replace("time_embed.", "time_text_embed."): (
            torch.cat(tensor.chunk(2)[::-1]) if name.startswith("norm_out.") else tensor
        )
        for name, tensor in state.items()
    }
    return original_layouts.flux_1(named)


def save_models(folder: Path) -> None:
    """`longcat.safetensors`, `ae.safetensors` and the encoder folder `qwen25vl`."""
    keys = original(transformer().state_dict())
    tiny.save(keys, folder / "diffusion_models/longcat.safetensors")
    tiny.save(tiny.ldm_keys(tiny.vae().state_dict()), folder / "vae/ae.safetensors")
    qwen_image.save_text_encoder(folder)
    tiny.settle(folder)


class Processor:
    """The part of Qwen2VLProcessor that the pipeline uses; its own wants torchvision."""

    def __init__(self) -> None:
        self.image_processor = Qwen2VLImageProcessorPil(
            size={"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 16384}
        )


def pipeline(kind: str = "") -> Any:
    """LongCatImagePipeline, or that of `edit`, whose text encoder is told where the picture is."""
    words = qwen_image.tokenizer()
    encoder = qwen_image.text_encoder()
    inner, pad = encoder.forward, words.convert_tokens_to_ids("<|image_pad|>")

    def told(input_ids: torch.Tensor, **more: Any) -> Any:
        if "pixel_values" in more:
            more["mm_token_type_ids"] = (input_ids == pad).int()
        return inner(input_ids=input_ids, **more)

    encoder.forward = told
    return (LongCatImageEditPipeline if kind == "edit" else LongCatImagePipeline)(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=tiny.vae(),
        text_encoder=encoder,
        tokenizer=words,
        text_processor=Processor(),
        transformer=transformer(),
    )
