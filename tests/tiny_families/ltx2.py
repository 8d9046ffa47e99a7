"""LTX-2: original-layout transformer and VAEs, its connectors and vocoder as folders, Gemma 3."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    AutoencoderKLLTX2Audio,
    AutoencoderKLLTX2Video,
    FlowMatchEulerDiscreteScheduler,
    LTX2ImageToVideoPipeline,
    LTX2Pipeline,
    LTX2VideoTransformer3DModel,
)
from diffusers.pipelines.ltx2 import LTX2TextConnectors, LTX2Vocoder
from transformers import Gemma3TextConfig, Gemma3TextModel

from tests import original_layouts, tiny
from tests.tiny_families import FamilyRun

NAME: Final = "ltx2"
HIDDEN: Final = 16
CAPTION: Final = 16
# A head of 8 for the video and of 4 for the sound, which is turned by cross-attention too.
TRANSFORMER: Final[Mapping[str, Any]] = {
    "num_layers": 2,
    "num_attention_heads": 32,
    "attention_head_dim": 2,
    "cross_attention_dim": 64,
    "audio_num_attention_heads": 32,
    "audio_attention_head_dim": 2,
    "audio_cross_attention_dim": 64,
    "caption_channels": CAPTION,
    "rope_type": "split",
}
VAE: Final[Mapping[str, Any]] = {
    "block_out_channels": (8, 16, 32, 64),
    "decoder_block_out_channels": (8, 16, 32),
    "layers_per_block": (1, 1, 1, 1, 1),
    "decoder_layers_per_block": (1, 1, 1, 1),
    "latent_channels": 128,
    "spatial_compression_ratio": 32,
    "temporal_compression_ratio": 8,
}
# As many channels as the statistics have, which is what a latent frame has.
AUDIO: Final[Mapping[str, Any]] = {"base_channels": 128, "ch_mult": (1, 1, 1), "num_res_blocks": 1}
VOCODER: Final[Mapping[str, Any]] = {
    "in_channels": 128,
    "hidden_channels": 32,
}
RUNS: Final = (
    FamilyRun(
        "lightricks/ltx-2-text-to-video",
        {"steps": 2, "frames": 9, "guidance": 3.0},
        takes=(("video", "mp4"), ("audio", "wav")),
        fps=24.0,
        seconds=9 / 24,
        same_as={"cfg": 3.0},
    ),
    FamilyRun(
        "lightricks/ltx-2-image-to-video",
        {"steps": 2, "frames": 9, "guidance": 1.0, "generate_audio": False},
        takes=(("video", "mp4"),),
        fps=24.0,
        seconds=9 / 24,
        images={"image": (90, 70)},
    ),
)


def transformer(seed: int = 70) -> LTX2VideoTransformer3DModel:
    """A transformer with weights big enough to move the video."""
    torch.manual_seed(seed)
    model = LTX2VideoTransformer3DModel(**TRANSFORMER)
    tiny.randomise(model, 0.2)
    return model.eval()


def vae() -> AutoencoderKLLTX2Video:
    """A VAE with statistics of its own."""
    torch.manual_seed(71)
    model = AutoencoderKLLTX2Video(**VAE)
    tiny.randomise(model, 0.2)
    model.latents_mean = torch.linspace(-0.2, 0.2, 128)
    model.latents_std = torch.linspace(0.5, 1.5, 128)
    return model.eval()


def audio_vae() -> AutoencoderKLLTX2Audio:
    """An audio VAE with statistics of its own."""
    torch.manual_seed(72)
    model = AutoencoderKLLTX2Audio(**AUDIO)
    tiny.randomise(model, 0.3)
    model.latents_mean = torch.linspace(-0.1, 0.1, model.latents_mean.shape[0])
    model.latents_std = torch.linspace(0.8, 1.2, model.latents_std.shape[0])
    return model.eval()


def vocoder() -> LTX2Vocoder:
    """A narrow vocoder."""
    torch.manual_seed(73)
    model = LTX2Vocoder(**VOCODER)
    tiny.randomise(model, 0.1)
    return model.eval()


def connectors() -> LTX2TextConnectors:
    """Connectors of one block."""
    torch.manual_seed(74)
    model = LTX2TextConnectors(
        caption_channels=CAPTION,
        text_proj_in_factor=3,
        video_connector_num_attention_heads=2,
        video_connector_attention_head_dim=8,
        video_connector_num_layers=1,
        audio_connector_num_attention_heads=2,
        audio_connector_attention_head_dim=8,
        audio_connector_num_layers=1,
        rope_type="split",
    )
    tiny.randomise(model, 0.2)
    return model.eval()


def text_encoder() -> Gemma3TextModel:
    """A Gemma 3 of two layers, one of which looks at all tokens."""
    torch.manual_seed(75)
    config = Gemma3TextConfig(
        vocab_size=272,
        hidden_size=HIDDEN,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        layer_types=["sliding_attention", "full_attention"],
    )
    model = Gemma3TextModel(config)
    tiny.randomise(model, 0.1)
    return model.eval()


def save_models(folder: Path) -> None:
    """All pieces in a models folder."""
    state = original_layouts.ltx_2(transformer().state_dict())
    state = {f"model.diffusion_model.{name}": tensor for name, tensor in state.items()}
    tiny.save(state, folder / "diffusion_models/ltx2.safetensors")
    tiny.save(original_layouts.ltx_vae(vae().state_dict()), folder / "vae/ltx2-vae.safetensors")
    tiny.save(
        original_layouts.ltx_2_audio(audio_vae().state_dict()),
        folder / "vae/ltx2-audio.safetensors",
    )
    vocoder().save_pretrained(folder / "vae/ltx2-vocoder")
    connectors().save_pretrained(folder / "text_encoders/ltx2-connectors")
    text_encoder().save_pretrained(folder / "text_encoders/ltx2-gemma")
    tiny.tokenizer().save_pretrained(folder / "text_encoders/ltx2-gemma")
    tiny.settle(folder)


def pipeline(*, picture: bool = False) -> LTX2Pipeline | LTX2ImageToVideoPipeline:
    """The reference."""
    kind = LTX2ImageToVideoPipeline if picture else LTX2Pipeline
    return kind(
        scheduler=FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True,
            base_shift=0.95,
            max_shift=2.05,
            base_image_seq_len=1024,
            max_image_seq_len=4096,
            shift_terminal=0.1,
        ),
        vae=vae(),
        audio_vae=audio_vae(),
        text_encoder=text_encoder(),
        tokenizer=tiny.tokenizer(),
        connectors=connectors(),
        transformer=transformer(),
        vocoder=vocoder(),
    )
