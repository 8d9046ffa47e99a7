"""Qwen-Image 2.1: a transformer as ComfyUI writes it, its VAE with alpha, Qwen3-VL with a tower."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch
from diffusers import (
    AutoencoderKLQwenImage21,
    FlowMatchEulerDiscreteScheduler,
    QwenImage21Pipeline,
    QwenImage21Transformer2DModel,
)
from transformers import (
    BatchFeature,
    Qwen2Tokenizer,
    Qwen2VLImageProcessorPil,
    Qwen3VLForConditionalGeneration,
)

from inline_core.families.qwen_image_21.text import PREFIX
from tests import original_layouts, tiny, tiny_encoders
from tests.tiny_families import FamilyRun, qwen_image

NAME: Final = "qwen-image-2.1"
HIDDEN: Final = 16
TRANSFORMER: Final[Mapping[str, Any]] = {
    "in_channels": 64,
    "out_channels": 64,
    "num_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "context_in_dim": HIDDEN,
    "mlp_ratio": 2,
    "axes_dims_rope": (4, 6, 6),
}
VAE: Final[Mapping[str, Any]] = {"base_dim": 4, "decoder_base_dim": 6}
SMALLER: Final = (("inline_core.families.qwen_image_21.pictures.REFERENCE_PIXELS", 96 * 96),)
RUNS: Final = (
    FamilyRun("qwen/qwen-image-2.1", {"steps": 3}, same_as={"cfg": 1.0}),
    FamilyRun(
        "qwen/qwen-image-2.1",
        {"steps": 4, "strength": 0.5},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
    FamilyRun("qwen/qwen-image-2.1-edit", {"steps": 2}, images={"image": (64, 96)}),
)


def transformer() -> QwenImage21Transformer2DModel:
    """A transformer with weights big enough to move the picture."""
    torch.manual_seed(80)
    model = QwenImage21Transformer2DModel(**TRANSFORMER)
    tiny.randomise(model, 0.25)
    return model.eval()


def vae() -> AutoencoderKLQwenImage21:
    """The VAE with the statistics of the published one."""
    torch.manual_seed(81)
    model = AutoencoderKLQwenImage21(**VAE)
    tiny.randomise(model, 0.3)
    return model.eval()


def text_encoder() -> Qwen3VLForConditionalGeneration:
    """A Qwen3-VL of two layers, and a tower of one."""
    torch.manual_seed(82)
    named = qwen_image.tokenizer().convert_tokens_to_ids
    ids = {f"{name}_token_id": named(f"<|{name}_pad|>") for name in ("image", "video")}
    config = tiny_encoders.qwen3_vl_config(HIDDEN, inner=32, layers=2, blocks=1, **ids)
    config.text_config.tie_word_embeddings = False
    model = Qwen3VLForConditionalGeneration(config)
    tiny.randomise(model, 0.15)
    return model.eval()


def save_text_encoder(folder: Path) -> None:
    """A Hugging Face folder, since the tower's heads are in no shape."""
    target = folder / "text_encoders/qwen3vl-8b"
    text_encoder().save_pretrained(target)
    qwen_image.tokenizer().save_pretrained(target)


def save_models(folder: Path) -> None:
    """`qwen21.safetensors`, `qwen21_vae.safetensors` and the encoder folder `qwen3vl-8b`."""
    keys = original_layouts.qwen_image_2_1(dict(transformer().state_dict()))
    tiny.save(keys, folder / "diffusion_models/qwen21.safetensors")
    keys = original_layouts.wan_vae(dict(vae().state_dict()))
    tiny.save(keys, folder / "vae/qwen21_vae.safetensors")
    save_text_encoder(folder)
    tiny.settle(folder)


_PIXELS: Final = MappingProxyType({"shortest_edge": 32 * 32, "longest_edge": 16777216})


class Processor:
    """What Qwen3VLProcessor does with texts and pictures; its own wants torchvision."""

    def __init__(self, words: Qwen2Tokenizer, pixels: Mapping[str, int] = _PIXELS) -> None:
        self.tokenizer = words
        half = [0.5, 0.5, 0.5]
        self._pictures = Qwen2VLImageProcessorPil(
            size=dict(pixels),
            patch_size=16,
            image_mean=half,
            image_std=half,
        )

    def apply_chat_template(self, _: Any, **__: Any) -> list[list[int]]:
        return [self.tokenizer(PREFIX).input_ids]

    def __call__(self, text: list[str], images: Any = None, **_: Any) -> Any:
        shown = {}
        whole = text[0]
        if images is not None:
            shown = dict(self._pictures(images=images, return_tensors="pt"))
            for count in (shown["image_grid_thw"].prod(-1) // 4).tolist():
                whole = whole.replace("<|image_pad|>", "<|video_pad|>" * count, 1)
            whole = whole.replace("<|video_pad|>", "<|image_pad|>")
        words = self.tokenizer([whole], return_tensors="pt")
        pad = self.tokenizer.convert_tokens_to_ids("<|image_pad|>")
        kinds = (words["input_ids"] == pad).int()
        return BatchFeature({**words, **shown, "mm_token_type_ids": kinds})


def pipeline() -> Any:
    """QwenImage21Pipeline with the scheduler of diffusers' defaults."""
    return QwenImage21Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=vae(),
        text_encoder=text_encoder(),
        processor=Processor(qwen_image.tokenizer()),
        transformer=transformer(),
    )
