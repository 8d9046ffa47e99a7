"""Stable Diffusion XL: one checkpoint with U-Net, VAE, CLIP-L, and CLIP-G in OpenCLIP's layout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    AutoencoderKL,
    ControlNetModel,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)

from tests import checkpoints, tiny, tiny_encoders
from tests.tiny_families import FamilyRun, sd15

NAME: Final = "sdxl"
NODE: Final = "stabilityai/stable-diffusion-xl"
CLIP_L: Final = 64
CLIP_G: Final = 128
UNET: Final[Mapping[str, Any]] = {
    "block_out_channels": (64, 128),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    "layers_per_block": 2,
    "cross_attention_dim": CLIP_L + CLIP_G,
    "transformer_layers_per_block": (1, 2),
    "use_linear_projection": True,
    "attention_head_dim": (1, 2),
    "sample_size": 64,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": CLIP_G + 6 * 256,
}
RUNS: Final = (
    FamilyRun(NODE, {"steps": 3}, same_as={"cfg": 6.0}),
    FamilyRun(
        NODE,
        {"steps": 4, "strength": 0.5, "guidance": 1.0, "original_width": 512},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
)


def unet(**changes: Any) -> UNet2DConditionModel:
    """A U-Net of two levels, the first one without attention."""
    torch.manual_seed(82)
    model = UNet2DConditionModel(**{**UNET, **changes})
    tiny.randomise(model, 0.1)
    # Noise of about the size of a trained model's, so that rounding stays below what is compared.
    model.conv_out.weight.data *= 0.1
    for name, parameter in model.named_parameters():
        if "attn2.to_out.0.weight" in name:
            parameter.data *= 8  # or the prompt would hardly count
    return model.eval()


def vae() -> AutoencoderKL:
    """The shapes of SD1.5's, another scaling."""
    return tiny.vae(
        latent_channels=4,
        use_quant_conv=True,
        use_post_quant_conv=True,
        scaling_factor=0.13025,
        shift_factor=None,
    )


def clip_l() -> Any:
    """CLIP-L of three layers."""
    return tiny_encoders.clip(width=CLIP_L, layers=3)


def clip_g() -> Any:
    """CLIP-G with its projection."""
    return tiny_encoders.clip(43, CLIP_G, projected=True, layers=3)


def controlnet() -> ControlNetModel:
    """A ControlNet whose outputs, which start as zeros, move the picture."""
    torch.manual_seed(83)
    wanted = {key: value for key, value in UNET.items() if key not in sd15.OF_UNETS}
    model = ControlNetModel(**wanted, conditioning_embedding_out_channels=(16, 32, 96, 256))
    tiny.randomise(model, 0.08)
    return model.eval()


def checkpoint_keys(model: UNet2DConditionModel | None = None) -> dict[str, torch.Tensor]:
    """Everything in one file."""
    return checkpoints.joined(
        {
            "model.diffusion_model.": sd15.unet_keys(model or unet()),
            "first_stage_model.": tiny.ldm_keys(vae().state_dict()),
            "conditioner.embedders.0.transformer.": tiny_encoders.clip_keys(clip_l()),
            "conditioner.embedders.1.model.": checkpoints.open_clip(clip_g().state_dict()),
        }
    )


def save_models(folder: Path) -> None:
    """`sdxl.safetensors` and the tokenizer of both CLIPs."""
    tiny.save(checkpoint_keys(), folder / "checkpoints/sdxl.safetensors")
    tiny_encoders.clip_tokenizer().save_pretrained(folder / "text_encoders/clip_l.tokenizer")
    tiny.settle(folder)


def parts() -> dict[str, Any]:
    """What all pipelines of SDXL are made of."""
    return {
        "vae": vae(),
        "text_encoder": clip_l(),
        "tokenizer": tiny_encoders.clip_tokenizer(),
        "text_encoder_2": clip_g(),
        "tokenizer_2": tiny_encoders.clip_tokenizer(),
        "unet": unet(),
        "scheduler": sd15.scheduler(),
    }


def pipeline() -> Any:
    """StableDiffusionXLPipeline."""
    return StableDiffusionXLPipeline(**parts(), add_watermarker=False)
