"""Writes the demo model in the layouts its real counterparts have, and reads it back to prove it.

The transformer gets the original (ComfyUI) keys of Z-Image, the autoencoder the ldm keys of
`ae.safetensors`, the text encoder a Hugging Face folder with its tokenizer.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import torch
from diffusers import AutoencoderKL, ZImageTransformer2DModel
from diffusers.loaders.single_file_utils import (
    convert_ldm_vae_checkpoint,
    convert_z_image_transformer_checkpoint_to_diffusers,
)
from safetensors.torch import save_file
from transformers import Qwen2Tokenizer, Qwen3Model

Weights = dict[str, torch.Tensor]

TRANSFORMER_FILE: Final = Path("diffusion_models") / "inline-demo.safetensors"
VAE_FILE: Final = Path("vae") / "inline-demo-ae.safetensors"
TEXT_FOLDER: Final = Path("text_encoders") / "inline-demo-text"
MAX_BYTES: Final = 14_000_000
METADATA: Final = {
    "format": "pt",
    "modelspec.sai_model_spec": "1.0.0",
    "modelspec.title": "Inline demo (shapes)",
    "modelspec.architecture": "z-image",
    "modelspec.resolution": "128x128",
    "modelspec.description": (
        "A tiny Z-Image that paints one coloured shape on a coloured background, trained on "
        "drawings by scripts/train_demo_model.py. Shapes: circle, square, triangle, star. "
        "Colours: red, green, blue, yellow, purple, cyan, white, black. Sizes: small, medium, "
        "large. Places: center, left, right, top, bottom."
    ),
}


def original_transformer(model: ZImageTransformer2DModel) -> Weights:
    """Return the transformer's weights in bfloat16 under their original keys, qkv fused."""
    weights = {name: value.detach().bfloat16() for name, value in model.state_dict().items()}
    result: Weights = {}
    for name, value in weights.items():
        if ".attention.to_q." in name:
            parts = [weights[name.replace("to_q", part)] for part in ("to_q", "to_k", "to_v")]
            result[name.replace("to_q", "qkv")] = torch.cat(parts)  # (3D, D)
        elif ".attention.to_k." not in name and ".attention.to_v." not in name:
            result[_original_name(name)] = value
    return {name: value.contiguous().clone() for name, value in result.items()}


def _original_name(name: str) -> str:
    """Return the original key of a diffusers key that is not a query, key or value."""
    for old, new in (
        ("all_final_layer.2-1.", "final_layer."),
        ("all_x_embedder.2-1.", "x_embedder."),
        (".attention.to_out.0.", ".attention.out."),
        (".attention.norm_k.", ".attention.k_norm."),
        (".attention.norm_q.", ".attention.q_norm."),
    ):
        name = name.replace(old, new)
    return name


def original_vae(model: AutoencoderKL, dtype: torch.dtype) -> Weights:
    """Return the autoencoder's weights under ldm keys (`encoder.down.0.block.0...`)."""
    levels = len(model.config.block_out_channels)
    result: Weights = {}
    for name, value in model.state_dict().items():
        result[_ldm_name(name, levels)] = value.detach().to(dtype).contiguous().clone()
    return result


def _ldm_name(name: str, levels: int) -> str:
    """Return the ldm key of one of AutoencoderKL's keys."""
    for old, new in (
        (r"\.down_blocks\.(\d+)\.resnets\.", r".down.\1.block."),
        (r"\.down_blocks\.(\d+)\.downsamplers\.0\.", r".down.\1.downsample."),
        (r"\.conv_norm_out\.", ".norm_out."),
        (r"\.conv_shortcut\.", ".nin_shortcut."),
    ):
        name = re.sub(old, new, name)
    name = re.sub(
        r"\.up_blocks\.(\d+)\.resnets\.",
        lambda match: f".up.{levels - 1 - int(match[1])}.block.",
        name,
    )
    name = re.sub(
        r"\.up_blocks\.(\d+)\.upsamplers\.0\.",
        lambda match: f".up.{levels - 1 - int(match[1])}.upsample.",
        name,
    )
    return re.sub(
        r"\.mid_block\.resnets\.(\d)\.", lambda match: f".mid.block_{int(match[1]) + 1}.", name
    )


def _same(read: Weights, wanted: Weights, what: str) -> None:
    """Raise unless both hold the same names with bit-equal values."""
    if read.keys() != wanted.keys():
        raise RuntimeError(f"{what}: other names: {sorted(read.keys() ^ wanted.keys())[:6]}")
    for name, value in wanted.items():
        if not torch.equal(read[name], value):
            raise RuntimeError(f"{what}: {name} differs")


def write(
    out: Path,
    transformer: ZImageTransformer2DModel,
    text: Qwen3Model,
    tokenizer: Qwen2Tokenizer,
    vae: AutoencoderKL,
) -> int:
    """Write all files below `out`, prove them with diffusers' own converters, return their size."""
    painted = original_transformer(transformer)
    back = convert_z_image_transformer_checkpoint_to_diffusers(dict(painted))
    _same(back, {k: v.bfloat16() for k, v in transformer.state_dict().items()}, "transformer")
    coded = original_vae(vae, torch.bfloat16)
    config = dict(vae.config)
    back = convert_ldm_vae_checkpoint(dict(coded), config)
    _same(back, {k: v.bfloat16() for k, v in vae.state_dict().items()}, "autoencoder")
    for path, weights in ((TRANSFORMER_FILE, painted), (VAE_FILE, coded)):
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        extra = _vae_metadata(config) if path == VAE_FILE else {}
        save_file(weights, out / path, metadata={**METADATA, **extra})
    folder = out / TEXT_FOLDER
    text.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    files = [file for file in out.rglob("*") if file.is_file()]
    for file in files:
        file.chmod(0o644)
    size = sum(file.stat().st_size for file in files)
    if size > MAX_BYTES:
        raise RuntimeError(f"{size} bytes are more than {MAX_BYTES}")
    return size


def _vae_metadata(config: dict[str, object]) -> dict[str, str]:
    """Return what an autoencoder's shapes do not tell: normalisation groups and constants."""
    names = ("norm_num_groups", "scaling_factor", "shift_factor")
    return {
        "modelspec.title": "Inline demo autoencoder (shapes)",
        "autoencoder_kl": json.dumps({name: config[name] for name in names}),
    }
