"""Reads the exported demo model as any single-file model is read, and paints with it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import torch
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    ZImagePipeline,
    ZImageTransformer2DModel,
)
from PIL import Image
from safetensors import safe_open
from transformers import AutoTokenizer, Qwen3Model

from . import autoencoder, checker
from .captions import plain_caption
from .drawing import IMAGE_SIZE, Pixels
from .export import TEXT_FOLDER, TRANSFORMER_FILE, VAE_FILE
from .network import HEAD, TEXT_WIDTH
from .training import SCHEDULE_SHIFT

STEPS: Final = 8
# The demo variant's default, in the pipeline's convention (pos + g * (pos - neg)).
GUIDANCE: Final = 1.0


def _transformer(path: Path, folder: str) -> ZImageTransformer2DModel:
    """Return the transformer of a file with original keys; its sizes come from the header."""
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        width = file.get_slice("x_pad_token").get_shape()[-1]
    with torch.device("meta"):
        plain = ZImageTransformer2DModel(
            dim=width,
            n_layers=_count(names, "layers."),
            n_refiner_layers=_count(names, "noise_refiner."),
            n_heads=width // HEAD,
            n_kv_heads=width // HEAD,
            cap_feat_dim=TEXT_WIDTH,
            axes_dims=[HEAD // 4, 3 * HEAD // 8, 3 * HEAD // 8],
        )
    plain.save_config(folder)
    return ZImageTransformer2DModel.from_single_file(
        str(path), config=folder, torch_dtype=torch.float32, local_files_only=True
    )


def _count(names: list[str], prefix: str) -> int:
    """Return how many numbered blocks start with a prefix."""
    return len({name[len(prefix) :].split(".")[0] for name in names if name.startswith(prefix)})


def load(out: Path) -> ZImagePipeline:
    """Return the unmodified ZImagePipeline around the exported files, in float32."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        transformer = _transformer(out / TRANSFORMER_FILE, first)
        autoencoder.build().save_config(second)
        vae = AutoencoderKL.from_single_file(
            str(out / VAE_FILE), config=second, torch_dtype=torch.float32, local_files_only=True
        )
    folder = str(out / TEXT_FOLDER)
    return ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=SCHEDULE_SHIFT),
        vae=vae,
        text_encoder=Qwen3Model.from_pretrained(folder, local_files_only=True, dtype=torch.float32),
        tokenizer=AutoTokenizer.from_pretrained(folder, local_files_only=True),
        transformer=transformer,
    )


def paint(pipeline: ZImagePipeline, caption: str, seed: int, steps: int = STEPS) -> Pixels:
    """Return one picture (128, 128, 3) uint8."""
    result = pipeline(
        prompt=caption,
        height=IMAGE_SIZE,
        width=IMAGE_SIZE,
        num_inference_steps=steps,
        guidance_scale=GUIDANCE,
        generator=torch.Generator().manual_seed(seed),
    )
    return np.asarray(result.images[0].convert("RGB"))


def check(out: Path, count: int) -> tuple[dict[str, float], Image.Image]:
    """Return the checker's figures in percent and a contact sheet for held-out captions."""
    pipeline = load(out)
    pipeline.set_progress_bar_config(disable=True)
    scenes = checker.held_out_scenes(count)
    pictures = [paint(pipeline, plain_caption(scene), seed) for seed, scene in enumerate(scenes)]
    return checker.score(pictures, scenes), checker.contact_sheet(pictures)
