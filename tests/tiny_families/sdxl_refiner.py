"""The refiner of Stable Diffusion XL: one checkpoint with U-Net, VAE and CLIP-G, no one-click node."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch
from diffusers import StableDiffusionXLImg2ImgPipeline, UNet2DConditionModel

from tests import checkpoints, tiny, tiny_encoders
from tests.tiny_families import sd15, sdxl

RUNS: Final = ()
NAME: Final = "sdxl-refiner"


def unet() -> UNet2DConditionModel:
    """A U-Net that is told five numbers of the picture beside what CLIP-G pools."""
    return sdxl.unet(
        cross_attention_dim=sdxl.CLIP_G,
        projection_class_embeddings_input_dim=sdxl.CLIP_G + 5 * 256,
    )


def checkpoint_keys() -> dict[str, torch.Tensor]:
    """Everything in one file."""
    return checkpoints.joined(
        {
            "model.diffusion_model.": sd15.unet_keys(unet()),
            "first_stage_model.": tiny.ldm_keys(sdxl.vae().state_dict()),
            "conditioner.embedders.0.model.": checkpoints.open_clip(sdxl.clip_g().state_dict()),
        }
    )


def save_models(folder: Path) -> None:
    """`refiner.safetensors` and CLIP's tokenizer."""
    tiny.save(checkpoint_keys(), folder / "checkpoints/refiner.safetensors")
    tiny_encoders.clip_tokenizer().save_pretrained(folder / "text_encoders/clip_g.tokenizer")
    tiny.settle(folder)


def pipeline() -> Any:
    """StableDiffusionXLImg2ImgPipeline without CLIP-L."""
    parts = sdxl.parts() | {"text_encoder": None, "tokenizer": None, "unet": unet()}
    return StableDiffusionXLImg2ImgPipeline(
        **parts, requires_aesthetics_score=True, add_watermarker=False
    )
