"""Krea 2: an original-layout transformer, the VAE of Wan 2.1 in ComfyUI's layout, Qwen3-VL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    AutoencoderKLQwenImage,
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    Krea2Pipeline,
    Krea2Transformer2DModel,
)
from transformers import Qwen3VLModel

from inline_core.families.krea2.text import PREFIX, SUFFIX
from tests import original_layouts, tiny, tiny_encoders
from tests.tiny_families import FamilyRun

NAME: Final = "krea-2"
HIDDEN: Final = 16
TRANSFORMER: Final[Mapping[str, Any]] = {
    "in_channels": 64,
    "num_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 48,
    "timestep_embed_dim": 32,
    "text_hidden_dim": HIDDEN,
    "num_text_layers": 12,
    "text_num_attention_heads": 1,
    "text_num_key_value_heads": 1,
    "text_intermediate_size": 32,
    "num_layerwise_text_blocks": 1,
    "num_refiner_text_blocks": 1,
    "axes_dims_rope": (4, 6, 6),
}
WAN_VAE: Final[Mapping[str, Any]] = {
    "base_dim": 8,
    "z_dim": 16,
    "dim_mult": [1, 1, 2, 2],
    "num_res_blocks": 2,
    "temperal_downsample": [False, True, True],
}
RUNS: Final = (
    FamilyRun("krea/krea-2-turbo", {"steps": 3}, size=(256, 320), same_as={"cfg": 1.0}),
    FamilyRun("krea/krea-2-raw", {"steps": 2}, size=(256, 256)),
    FamilyRun(
        "krea/krea-2-turbo",
        {"steps": 4, "strength": 0.5},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
)


def transformer() -> Krea2Transformer2DModel:
    """A transformer with weights big enough to move the picture."""
    torch.manual_seed(30)
    model = Krea2Transformer2DModel(**TRANSFORMER)
    tiny.randomise(model, 0.25)
    return model.eval()


def vae() -> AutoencoderKLWan:
    """The VAE of Wan 2.1, which Qwen-Image has too."""
    torch.manual_seed(31)
    model = AutoencoderKLWan(**WAN_VAE)
    tiny.randomise(model, 0.3)
    return model.eval()


def picture_vae() -> AutoencoderKLQwenImage:
    """The same weights in the class that picture pipelines use."""
    model = AutoencoderKLQwenImage(**WAN_VAE)
    model.load_state_dict(vae().state_dict())
    return model.eval()


def text_encoder() -> Qwen3VLModel:
    """A Qwen3-VL deep enough for the layers that Krea 2 reads."""
    torch.manual_seed(32)
    config = tiny_encoders.qwen3_vl_config(HIDDEN, inner=32, layers=36, blocks=1)
    model = Qwen3VLModel(config)
    tiny.randomise(model, 0.15)
    return model.eval()


def save_text_encoder(folder: Path) -> None:
    """A single file as ComfyUI has it, with the names of the language model and the tower."""
    state = text_encoder().state_dict()
    keys = {f"model.{name}": tensor for name, tensor in state.items()}
    tiny.save(keys, folder / "text_encoders/qwen3vl.safetensors")
    tiny.tokenizer().save_pretrained(folder / "text_encoders/qwen3vl.tokenizer")


def save_models(folder: Path) -> None:
    """`krea.safetensors`, `qwen_image_vae.safetensors` and `qwen3vl.safetensors`."""
    keys = original_layouts.krea_2(dict(transformer().state_dict()))
    tiny.save(keys, folder / "diffusion_models/krea.safetensors")
    keys = original_layouts.wan_vae(dict(vae().state_dict()))
    tiny.save(keys, folder / "vae/qwen_image_vae.safetensors")
    save_text_encoder(folder)
    tiny.settle(folder)


def pipeline(*, distilled: bool = True) -> Any:
    """Krea2Pipeline; the lengths of its template are those of the test's tokenizer."""
    pipe = Krea2Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True, max_image_seq_len=6400
        ),
        vae=picture_vae(),
        text_encoder=text_encoder(),
        tokenizer=tiny.tokenizer(),
        transformer=transformer(),
        is_distilled=distilled,
    )
    words = tiny.tokenizer()
    pipe.prompt_template_encode_start_idx = len(words(PREFIX).input_ids)
    pipe.prompt_template_encode_num_suffix_tokens = len(words(SUFFIX).input_ids)
    return pipe
