"""Stable Diffusion 1.5: one checkpoint with U-Net, VAE and CLIP-L in the layout of ldm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    AutoencoderKL,
    ControlNetModel,
    EulerDiscreteScheduler,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)

from tests import checkpoints, original_layouts, tiny, tiny_encoders
from tests.tiny_families import FamilyRun

NAME: Final = "sd15"
NODE: Final = "stabilityai/stable-diffusion-1-5"
WIDTH: Final = 64
UNET: Final[Mapping[str, Any]] = {
    "block_out_channels": (32, 64, 64),
    "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    "layers_per_block": 2,
    "cross_attention_dim": WIDTH,
    "attention_head_dim": 8,
    "sample_size": 64,
}
BETAS: Final = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
RUNS: Final = (
    FamilyRun(NODE, {"steps": 3}, same_as={"cfg": 7.0}),
    FamilyRun(
        NODE,
        {"steps": 4, "strength": 0.5, "guidance": 1.0, "clip_skip": 2},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
    FamilyRun(NODE, {"steps": 2}, images={"control_image": (64, 64)}),
)


def unet(**changes: Any) -> UNet2DConditionModel:
    """A U-Net of three levels, the last one without attention."""
    torch.manual_seed(80)
    model = UNet2DConditionModel(**{**UNET, **changes})
    tiny.randomise(model, 0.1)
    # Noise of about the size of a trained model's, so that rounding stays below what is compared.
    model.conv_out.weight.data *= 0.1
    return model.eval()


def vae() -> AutoencoderKL:
    """Four latent channels, with the convolutions beside the latents."""
    return tiny.vae(
        latent_channels=4,
        use_quant_conv=True,
        use_post_quant_conv=True,
        scaling_factor=0.18215,
        shift_factor=None,
    )


def clip() -> Any:
    """CLIP-L of three layers."""
    return tiny_encoders.clip(width=WIDTH, layers=3, hidden_act="gelu")


OF_UNETS: Final = ("up_block_types", "sample_size")


def controlnet(**changes: Any) -> ControlNetModel:
    """A ControlNet whose outputs, which start as zeros, move the picture."""
    torch.manual_seed(81)
    wanted = {key: value for key, value in UNET.items() if key not in OF_UNETS}
    model = ControlNetModel(
        **{**wanted, "conditioning_embedding_out_channels": (16, 32, 96, 256), **changes}
    )
    tiny.randomise(model, 0.08)
    return model.eval()


def unet_keys(model: UNet2DConditionModel) -> dict[str, torch.Tensor]:
    """The names of the original code."""
    return original_layouts.stable_diffusion(dict(model.state_dict()))


def checkpoint_keys(model: UNet2DConditionModel | None = None) -> dict[str, torch.Tensor]:
    """Everything in one file."""
    return checkpoints.joined(
        {
            "model.diffusion_model.": unet_keys(model or unet()),
            "first_stage_model.": tiny.ldm_keys(vae().state_dict()),
            "cond_stage_model.transformer.": tiny_encoders.clip_keys(clip()),
        }
    )


def save_controlnet(path: Path, model: ControlNetModel) -> Path:
    """The layout of the released ControlNets."""
    state = original_layouts.controlnet(dict(model.state_dict()))
    return tiny.save({f"control_model.{name}": tensor for name, tensor in state.items()}, path)


def save_models(folder: Path) -> None:
    """`sd15.safetensors`, the tokenizer of CLIP, and `canny.safetensors`."""
    tiny.save(checkpoint_keys(), folder / "checkpoints/sd15.safetensors")
    tiny_encoders.clip_tokenizer().save_pretrained(folder / "text_encoders/clip_l.tokenizer")
    save_controlnet(folder / "controlnet/canny.safetensors", controlnet())
    tiny.settle(folder)


def scheduler(**changes: Any) -> EulerDiscreteScheduler:
    """Euler at the timesteps that the plain schedule has."""
    return EulerDiscreteScheduler(**BETAS, timestep_spacing="trailing", **changes)


def parts() -> dict[str, Any]:
    """What all pipelines of Stable Diffusion are made of."""
    return {
        "vae": vae(),
        "text_encoder": clip(),
        "tokenizer": tiny_encoders.clip_tokenizer(),
        "unet": unet(),
        "scheduler": scheduler(),
        "safety_checker": None,
        "feature_extractor": None,
        "requires_safety_checker": False,
    }


def pipeline() -> Any:
    """StableDiffusionPipeline."""
    return StableDiffusionPipeline(**parts())
