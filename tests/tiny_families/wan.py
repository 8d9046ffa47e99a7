"""Wan 2.1 text to video: an original-layout transformer, its VAE, UMT5."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
from diffusers import (
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    WanImageToVideoPipeline,
    WanPipeline,
    WanTransformer3DModel,
    WanVACETransformer3DModel,
)
from diffusers.pipelines.wan import pipeline_wan_i2v
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    CLIPVisionModel,
    UMT5Config,
    UMT5EncoderModel,
)

from inline_core.families.wan.fun import WanFunTransformer3DModel
from tests import original_layouts, tiny
from tests.tiny_families import FamilyRun, krea2

NAME: Final = "wan"
HIDDEN: Final = 16
SEEN: Final = 16
TRANSFORMER: Final[Mapping[str, Any]] = {
    "num_attention_heads": 1,
    "attention_head_dim": 32,
    "in_channels": 16,
    "out_channels": 16,
    "text_dim": HIDDEN,
    "freq_dim": 32,
    "ffn_dim": 48,
    "num_layers": 2,
}
I2V_22: Final[Mapping[str, Any]] = {**TRANSFORMER, "in_channels": 36}
I2V: Final[Mapping[str, Any]] = {**I2V_22, "image_dim": SEEN, "added_kv_proj_dim": 32}
VACE: Final[Mapping[str, Any]] = {**TRANSFORMER, "vace_layers": [0], "vace_in_channels": 96}
TI2V: Final[Mapping[str, Any]] = {**TRANSFORMER, "in_channels": 48, "out_channels": 48}
_TOLD: Final = {"image_dim": SEEN, "added_kv_proj_dim": 32}
CONTROL: Final[Mapping[str, Any]] = {**TRANSFORMER, **_TOLD, "in_channels": 48}
CONTROL_11: Final[Mapping[str, Any]] = {**CONTROL, "ref_channels": 16}
CONTROL_22: Final[Mapping[str, Any]] = {**TRANSFORMER, "in_channels": 52, "ref_channels": 16}
CONTROL_5B: Final[Mapping[str, Any]] = {**TI2V, "in_channels": 148, "ref_channels": 48}
CAMERA: Final[Mapping[str, Any]] = {
    **TRANSFORMER,
    **_TOLD,
    "in_channels": 32,
    "camera_channels": 24,
}
CAMERA_22: Final[Mapping[str, Any]] = {**I2V_22, "camera_channels": 24}
FUN: Final[Mapping[str, Mapping[str, Any]]] = {
    "wan-fun-control": CONTROL,
    "wan-fun-control11": CONTROL_11,
    "wan-fun-control22": CONTROL_22,
    "wan-fun-control5b": CONTROL_5B,
    "wan-fun-camera": CAMERA,
    "wan-fun-camera22": CAMERA_22,
}
VAE_22: Final[Mapping[str, Any]] = {
    "base_dim": 8,
    "decoder_base_dim": 8,
    "z_dim": 48,
    "dim_mult": [1, 1, 2, 2],
    "num_res_blocks": 2,
    "temperal_downsample": [False, True, True],
    "is_residual": True,
    "in_channels": 12,
    "out_channels": 12,
    "patch_size": 2,
    "scale_factor_spatial": 16,
    "scale_factor_temporal": 4,
    "latents_mean": [0.1 * (index % 5) - 0.2 for index in range(48)],
    "latents_std": [0.5 + 0.1 * (index % 4) for index in range(48)],
}
RUNS: Final = (
    FamilyRun(
        "wan-ai/wan-text-to-video",
        {"steps": 2, "frames": 9},
        takes=(("video", "mp4"),),
        fps=16.0,
        seconds=9 / 16,
        same_as={"cfg": 5.0},
    ),
)


def transformer(config: Mapping[str, Any] = TRANSFORMER, seed: int = 50) -> WanTransformer3DModel:
    """A transformer with weights big enough to move the video."""
    torch.manual_seed(seed)
    kind = WanVACETransformer3DModel if "vace_layers" in config else WanTransformer3DModel
    if config.keys() & {"ref_channels", "camera_channels"}:
        kind = WanFunTransformer3DModel
    model = kind(**config)
    tiny.randomise(model, 0.005 * seed)
    return model.eval()


def vae_22() -> AutoencoderKLWan:
    """The VAE of Wan 2.2 5B, with statistics that are not those of the large one."""
    torch.manual_seed(51)
    model = AutoencoderKLWan(**VAE_22)
    tiny.randomise(model, 0.3)
    return model.eval()


def text_encoder() -> UMT5EncoderModel:
    """An UMT5 of two layers."""
    torch.manual_seed(52)
    config = UMT5Config(
        vocab_size=272,
        d_model=HIDDEN,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        feed_forward_proj="gated-gelu",
    )
    model = UMT5EncoderModel(config)
    tiny.randomise(model, 0.15)
    return model.eval()


def vision() -> CLIPVisionModel:
    """A tower of two layers."""
    torch.manual_seed(53)
    config = CLIPVisionConfig(
        hidden_size=SEEN,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=1,
        image_size=28,
        patch_size=14,
        hidden_act="quick_gelu",
    )
    model = CLIPVisionModel(config)
    tiny.randomise(model, 0.3)
    return model.eval()


def save_text_encoder(folder: Path) -> None:
    """A single file as ComfyUI has it, and its tokenizer."""
    state = text_encoder().state_dict()
    keys = {name: tensor for name, tensor in state.items() if name != "encoder.embed_tokens.weight"}
    tiny.save(keys, folder / "text_encoders/umt5.safetensors")
    tiny.tokenizer().save_pretrained(folder / "text_encoders/umt5.tokenizer")


def save_vision(folder: Path) -> None:
    """`clip_vision_h.safetensors` has the tower below `vision_model.`."""
    keys = {f"vision_model.{name}": tensor for name, tensor in vision().state_dict().items()}
    tiny.save(keys, folder / "clip_vision/clip_vision.safetensors")


def save_transformer(
    folder: Path, name: str = "wan", config: Mapping[str, Any] = TRANSFORMER, seed: int = 50
) -> None:
    """A file in the original layout."""
    keys = original_layouts.wan(dict(transformer(config, seed).state_dict()))
    tiny.save(keys, folder / f"diffusion_models/{name}.safetensors")


def save_models(folder: Path) -> None:
    """`wan.safetensors`, `wan_vae.safetensors` and `umt5.safetensors`."""
    save_transformer(folder)
    keys = original_layouts.wan_vae(dict(krea2.vae().state_dict()))
    tiny.save(keys, folder / "vae/wan_vae.safetensors")
    save_text_encoder(folder)
    tiny.settle(folder)


class EvenSteps(FlowMatchEulerDiscreteScheduler):  # type: ignore[misc]
    """Steps evenly spaced in time from 1 on, as all flow models here are sampled."""

    def set_timesteps(self, num_inference_steps: int, device: Any = None) -> None:
        even = np.linspace(1.0, 1 / num_inference_steps, num_inference_steps)
        super().set_timesteps(sigmas=even, device=device)


def pipeline(kind: str = "t2v") -> Any:
    """WanPipeline (`t2v`, `pair`, `5b`) or WanImageToVideoPipeline (`i2v`, `2.2-i2v`, `5b-i2v`)."""
    small = kind.startswith("5b")
    config = {"i2v": I2V, "2.2-i2v": I2V_22, "5b": TI2V, "5b-i2v": TI2V}.get(kind, TRANSFORMER)
    parts: dict[str, Any] = {
        "tokenizer": tiny.tokenizer(),
        "text_encoder": text_encoder(),
        "transformer": transformer(config),
        "vae": vae_22() if small else krea2.vae(),
        "scheduler": EvenSteps(shift=5.0 if small else 3.0),
        "expand_timesteps": small,
    }
    if kind == "pair":
        parts |= {"transformer_2": transformer(seed=60), "boundary_ratio": 0.875}
    if not kind.endswith("i2v"):
        return WanPipeline(**parts)
    # Not installed, and it changes nothing in these prompts.
    pipeline_wan_i2v.ftfy = SimpleNamespace(fix_text=str)
    if kind == "i2v":
        size = {"height": 28, "width": 28}
        parts["image_encoder"] = vision()
        parts["image_processor"] = CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=size)
    return WanImageToVideoPipeline(**parts)
