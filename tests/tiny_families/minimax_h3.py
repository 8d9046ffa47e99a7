"""MiniMax H3: a single-file transformer, its VAEs as folders, a Qwen3-VL with its tower."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch
from diffusers import (
    AutoencoderKLMiniMaxH3,
    AutoencoderKLMiniMaxH3Audio,
    MiniMaxH3Scheduler,
    MiniMaxH3Transformer3DModel,
)
from diffusers.modular_pipelines.minimax_h3 import MiniMaxH3Blocks
from transformers import Qwen2VLImageProcessorPil, Qwen3VLForConditionalGeneration

from tests import original_layouts, tiny, tiny_encoders
from tests.tiny_families import FamilyRun, qwen_image

NAME: Final = "minimax-h3"
HIDDEN: Final = 16
FRAMES: Final = 124
SECONDS: Final = FRAMES / 24
TRANSFORMER: Final[Mapping[str, Any]] = {
    # How much of a head is turned is in no shape, so that it is as wide as the real one.
    "num_attention_heads": 1,
    "attention_head_dim": 128,
    "hidden_size": 24,
    "num_layers": 2,
    "num_refiner_layers": 1,
    "ffn_dim": 32,
    "text_dim": HIDDEN,
    "freq_dim": 16,
    "time_embed_hidden_dim": 24,
    "time_embed_dim": 16,
}
VAE: Final[Mapping[str, Any]] = {
    "block_out_channels": (8, 8, 8, 8, 8, 16),
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "decoder_num_layers": 1,
    "decoder_num_attention_heads": 1,
    "decoder_attention_head_dim": 64,
    "latents_mean": [0.02 * index - 0.2 for index in range(24)],
    "latents_std": [0.5 + 0.05 * index for index in range(24)],
}
AUDIO: Final[Mapping[str, Any]] = {
    "encoder_dim": 2,
    "latent_dim": 64,
    "latent_channels": 32,
    "decoder_dim": 128,
    "resblock_kernel_sizes": (3,),
    "resblock_dilation_sizes": ((1,),),
    "latents_mean": [0.01 * index for index in range(32)],
    "latents_std": [0.8 + 0.01 * index for index in range(32)],
}
_PARAMS: Final = {"num_inference_steps": 3, "duration": 5.0}
_TAKES: Final = (("video", "mp4"), ("audio", "wav"))
RUNS: Final = (
    FamilyRun(
        "minimax/h3-text-to-video",
        _PARAMS,
        takes=_TAKES,
        fps=24.0,
        seconds=SECONDS,
        # Its node counts the end of the steps too, and takes seconds for frames.
        same_as={"cfg": 1.0, "steps": 2, "frames": FRAMES},
    ),
    FamilyRun(
        "minimax/h3-first-last-frame",
        {**_PARAMS, "num_inference_steps": 2},
        size=(64, 32),
        takes=_TAKES,
        fps=24.0,
        seconds=SECONDS,
        images={"image": (70, 90), "last_image": (90, 70)},
    ),
)
SMALLER: Final = (("inline_core.families.minimax_h3.pictures.REFERENCE_EDGE", 64),)


def transformer(seed: int = 90) -> MiniMaxH3Transformer3DModel:
    """A transformer with weights big enough to move the video."""
    torch.manual_seed(seed)
    model = MiniMaxH3Transformer3DModel(**TRANSFORMER)
    tiny.randomise(model, 0.25)
    return model.eval()


def vae() -> AutoencoderKLMiniMaxH3:
    """A VAE with statistics of its own."""
    torch.manual_seed(91)
    model = AutoencoderKLMiniMaxH3(**VAE)
    tiny.randomise(model, 0.2)
    return model.eval()


def audio_vae() -> AutoencoderKLMiniMaxH3Audio:
    """An audio VAE with statistics of its own."""
    torch.manual_seed(92)
    with warnings.catch_warnings():
        # Its convolutions are normalised in a way that torch calls outdated.
        warnings.simplefilter("ignore", FutureWarning)
        return AutoencoderKLMiniMaxH3Audio(**AUDIO).eval()


def text_encoder() -> Qwen3VLForConditionalGeneration:
    """A Qwen3-VL as deep as it must be and as narrow as it can be."""
    torch.manual_seed(93)
    known = qwen_image.tokenizer()
    ids = {name: known.convert_tokens_to_ids(f"<|{name}_pad|>") for name in ("image", "video")}
    config = tiny_encoders.qwen3_vl_config(
        HIDDEN,
        inner=16,
        layers=51,
        blocks=2,
        image_token_id=ids["image"],
        video_token_id=ids["video"],
    )
    model = Qwen3VLForConditionalGeneration(config)
    tiny.randomise(model, 0.05)
    return model.eval()


def original_keys() -> dict[str, torch.Tensor]:
    """The layout of the published single file, where a gate lies before its value."""
    made = original_layouts.minimax_h3(dict(transformer().state_dict()))
    for name, tensor in made.items():
        if name.endswith("mlp.fc1.weight"):
            made[name] = torch.cat(tensor.chunk(2)[::-1]).contiguous()
    return made


def save_models(folder: Path) -> None:
    """All pieces in a models folder."""
    tiny.save(original_keys(), folder / "diffusion_models/h3.safetensors")
    vae().save_pretrained(folder / "vae/h3-vae")
    audio_vae().save_pretrained(folder / "vae/h3-audio-vae")
    text_encoder().save_pretrained(folder / "text_encoders/qwen3-vl")
    qwen_image.tokenizer().save_pretrained(folder / "text_encoders/qwen3-vl")
    tiny.settle(folder)


def pipeline() -> Any:
    """The reference: diffusers' blocks with the same parts, down to latents."""
    known, encoder = qwen_image.tokenizer(), text_encoder()
    vision = encoder.config.vision_config
    processor = SimpleNamespace(
        image_processor=Qwen2VLImageProcessorPil(
            size={"shortest_edge": 65536, "longest_edge": 16777216},
            patch_size=vision.patch_size,
            temporal_patch_size=vision.temporal_patch_size,
            merge_size=vision.spatial_merge_size,
            image_mean=[0.5] * 3,
            image_std=[0.5] * 3,
        ),
        create_mm_token_type_ids=lambda rows: [
            [int(token == encoder.config.image_token_id) for token in row] for row in rows
        ],
    )
    blocks = MiniMaxH3Blocks()
    # Pictures and sound out of latents are compared by themselves.
    del blocks.sub_blocks["decode"]
    made = blocks.init_pipeline()
    made.update_components(
        transformer_ref=transformer(),
        text_encoder=encoder,
        tokenizer=known,
        vae=vae(),
        audio_vae=audio_vae(),
        transformer=transformer(),
        scheduler=MiniMaxH3Scheduler(shift=12.0),
        audio_scheduler=MiniMaxH3Scheduler(shift=3.0),
    )
    made.processor = processor
    return made
