"""ACE-Step 1.5: a transformer of the release, its condition encoder, Oobleck, a Qwen3 folder."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    AceStepPipeline,
    AceStepTransformer1DModel,
    AutoencoderOobleck,
    FlowMatchEulerDiscreteScheduler,
)
from diffusers.pipelines.ace_step import AceStepConditionEncoder

from tests import original_layouts, tiny
from tests.tiny_families import FamilyRun

NAME: Final = "ace-step"
WIDTH: Final = 24
_ATTENTION: Final[Mapping[str, Any]] = {
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "sliding_window": 4,
}
TRANSFORMER: Final[Mapping[str, Any]] = {
    **_ATTENTION,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "in_channels": 192,
    "audio_acoustic_hidden_dim": 64,
    "encoder_hidden_size": WIDTH,
}
CONDITION: Final[Mapping[str, Any]] = {
    **_ATTENTION,
    "hidden_size": WIDTH,
    "intermediate_size": 32,
    "text_hidden_dim": tiny.CAP_FEAT_DIM,
    "timbre_hidden_dim": 64,
    "num_lyric_encoder_hidden_layers": 2,
    "num_timbre_encoder_hidden_layers": 2,
}
VAE: Final[Mapping[str, Any]] = {
    "encoder_hidden_size": 8,
    "downsampling_ratios": [4, 10],
    "channel_multiples": [1, 2],
    "decoder_channels": 6,
    "decoder_input_channels": 64,
    "audio_channels": 2,
    "sampling_rate": 1000,
}
SECONDS: Final = 1.0
RUNS: Final = (
    FamilyRun(
        "ace-step/ace-step-1-5",
        {"steps": 2, "seconds": SECONDS},
        takes=(("audio", "wav"),),
        seconds=SECONDS,
        same_as={"cfg": 1.0},
    ),
    FamilyRun(
        "ace-step/ace-step-1-5",
        {"steps": 2, "seconds": 0.5, "variant": "base", "lyrics": "la la", "bpm": 120},
        takes=(("audio", "wav"),),
        seconds=0.52,  # thirteen latents
    ),
)


def transformer() -> AceStepTransformer1DModel:
    """A transformer with weights big enough to move the sound."""
    torch.manual_seed(80)
    model = AceStepTransformer1DModel(**TRANSFORMER)
    tiny.randomise(model, 0.25)
    return model.eval()


def condition() -> AceStepConditionEncoder:
    """A condition encoder whose silence is not zero."""
    torch.manual_seed(81)
    model = AceStepConditionEncoder(**CONDITION)
    tiny.randomise(model, 0.25)
    model.silence_latent = torch.randn(1, 15000, 64) * 0.5
    return model.eval()


def vae() -> AutoencoderOobleck:
    """An Oobleck of 25 latents a second, with snakes that are no identity."""
    torch.manual_seed(82)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model = AutoencoderOobleck(**VAE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.05)
    return model.eval()


def save_vae(folder: Path) -> None:
    """The folder `oobleck`, whose config says its rate."""
    vae().save_pretrained(folder / "vae/oobleck")


def save_encoders(folder: Path) -> None:
    """The folders `qwen` and `condition`."""
    tiny.save_text_encoder_folder(folder / "text_encoders/qwen")
    condition().save_pretrained(folder / "text_encoders/condition")


def save_transformer(folder: Path) -> None:
    """The folder `ace`."""
    transformer().save_pretrained(folder / "diffusion_models/ace")


def save_models(folder: Path) -> None:
    """The folders `ace`, `oobleck`, `qwen` and `condition`."""
    save_transformer(folder)
    save_vae(folder)
    save_encoders(folder)
    tiny.settle(folder)


def save_released(folder: Path) -> None:
    """The transformer as the release has it, beside the encoder of the same file."""
    keys = original_layouts.ace_step(dict(transformer().state_dict()))
    keys["encoder.text_projector.weight"] = torch.zeros(WIDTH, tiny.CAP_FEAT_DIM)
    keys["null_condition_emb"] = torch.zeros(1, 1, WIDTH)
    tiny.save(keys, folder / "diffusion_models/ace.safetensors")


def pipeline() -> Any:
    """AceStepPipeline on the same weights."""
    return AceStepPipeline(
        vae=vae(),
        text_encoder=tiny.text_encoder(),
        tokenizer=tiny.tokenizer(),
        transformer=transformer(),
        condition_encoder=condition(),
        scheduler=FlowMatchEulerDiscreteScheduler(num_train_timesteps=1, shift=1.0),
    )
