"""Every published model is recognised from its header, and its class can be rebuilt exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

from inline_core.loading.component import Role
from tests.real_models import Model, differences, identify_state, shared
from tests.unit.loading.architectures.catalog_of_models import ALL, TINY

MODELS = [
    pytest.param(model, id=f"{kind}-{name}")
    for kind, models in {**ALL, "tiny": TINY}.items()
    for name, model in models.items()
]


@pytest.mark.parametrize("model", MODELS)
def test_the_class_is_rebuilt_from_its_own_names(model: Model, tmp_path: Path) -> None:
    state = shared(model.class_name, model.arguments)
    found = identify_state(state, tmp_path / "x.safetensors")
    assert (found.family, found.class_name, found.variant, found.problems) == (
        model.family,
        model.class_name,
        model.variant,
        (),
    )
    assert differences(state, shared(found.class_name, found.config)) == []


ROLES = {
    "diffusion model": {Role.DIFFUSION_MODEL},
    "VAE": {Role.VAE, Role.AUDIO_VAE, Role.VIDEO_DECODER},
    "text encoder": {Role.TEXT_ENCODER},
    "other": {Role.CLIP_VISION, Role.MODEL_PATCH, Role.CONTROLNET, Role.VOCODER},
}


@pytest.mark.parametrize("kind", ALL)
def test_no_file_is_taken_for_one_of_another_role(kind: str, tmp_path: Path) -> None:
    """A file in the wrong folder is named for what it is, whatever folder it lies in."""
    for model in ALL[kind].values():
        found = identify_state(
            shared(model.class_name, model.arguments), tmp_path / "x.safetensors"
        )
        assert found.role in ROLES[kind], found.in_words()
        assert found.in_words().startswith(("a ", "an ")), found.in_words()
        assert found.dtype == "BF16"
        assert found.parameter_count * 2 == found.size_bytes


def test_words_for_files_in_the_wrong_place(tmp_path: Path) -> None:
    words = {
        "VAE": {"kl-16": "a VAE (decoder.* keys)", "wan": "a Wan VAE (decoder.* keys)"},
        "text encoder": {
            "qwen3-4b": "a Qwen3 text encoder (embed_tokens and self_attn.q_norm keys)",
            "umt5-xxl": "a UMT5 text encoder (SelfAttention and relative_attention_bias keys)",
        },
        "diffusion model": {
            "sdxl": "an SDXL diffusion model (down_blocks.0.resnets.0.norm1.weight and "
            "time_embedding.linear_1.weight keys)",
        },
        "other": {"clip-vision-h": "a CLIP vision encoder (vision_model.* keys)"},
    }
    for kind, expected in words.items():
        for name, said in expected.items():
            model = ALL[kind][name]
            state = shared(model.class_name, model.arguments)
            assert identify_state(state, tmp_path / "x.safetensors").in_words() == said
