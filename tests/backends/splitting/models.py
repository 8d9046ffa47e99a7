"""A models folder with every family that can be split, with four heads each."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import torch
from diffusers import (
    Krea2Transformer2DModel,
    QwenImageTransformer2DModel,
    WanTransformer3DModel,
)

from tests import tiny, tiny_flux2
from tests.tiny_families import flux1, krea2, qwen_image, wan

FAMILIES = ("z-image", "flux-1", "flux-2", "qwen-image", "wan", "krea-2")
HEADS = 4


@functools.cache
def split_models() -> Path:
    """One models folder for the whole test session; do not write into it."""
    folder = Path(tempfile.mkdtemp(prefix="inline-split-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for family in (tiny, tiny_flux2, flux1, qwen_image, krea2, wan):
        family.save_models(folder)
    for file in (folder / "diffusion_models").iterdir():
        file.unlink()
    for name, model in _transformers().items():
        tiny.save(model.state_dict(), folder / f"diffusion_models/{name}.safetensors")
    tiny.settle(folder)
    return folder


def _transformers() -> dict[str, torch.nn.Module]:
    torch.manual_seed(70)
    heads = {"num_attention_heads": HEADS}
    qwen = QwenImageTransformer2DModel(**{**qwen_image.TRANSFORMER, **heads})
    krea = Krea2Transformer2DModel(**{**krea2.TRANSFORMER, **heads, "num_key_value_heads": 2})
    # The heads of Wan are 128 wide in every file.
    video = WanTransformer3DModel(
        **{**wan.TRANSFORMER, **heads, "attention_head_dim": 128, "num_layers": 1}
    )
    for model, strength in ((qwen, 0.25), (krea, 0.25), (video, 0.03)):
        tiny.randomise(model, strength)
    return {
        "z": tiny.transformer(dim=128, n_heads=HEADS, n_kv_heads=HEADS),
        "z3": tiny.transformer(dim=96, n_heads=3, n_kv_heads=3),
        "flux1": flux1.transformer(**heads),
        "flux2": tiny_flux2.transformer(**heads),
        "qwen": qwen.eval(),
        "krea": krea.eval(),
        "wan": video.eval(),
    }
