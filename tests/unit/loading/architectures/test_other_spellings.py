"""Layouts that no converter of diffusers has: text encoders, and releases known by their structure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from inline_core.loading.component import Role
from tests import original_layouts
from tests.original_layouts import ORIGINAL, renamed, stable_diffusion
from tests.real_models import Model, differences, identify_state, shared
from tests.tiny_families import hunyuan_video15
from tests.unit.loading.architectures.catalog_of_models import (
    DIFFUSION_MODELS,
    OTHERS,
    TEXT_ENCODERS,
    TINY,
    VAES,
)

State = Mapping[str, torch.Tensor]
HUB = (
    (r"^language_model\.", "model.language_model."),
    (r"^(visual|vision_tower|multi_modal_projector)\.", r"model.\1."),
)
OLD_HUB = (
    (r"^language_model\.", "language_model.model."),
    (r"^vision_tower\.(?=embeddings|encoder|post_)", "vision_tower.vision_model."),
)
COMFY = ((r"^language_model\.", "model."),)


@pytest.mark.parametrize(
    ("name", "rules", "layout"),
    [
        ("qwen3-vl-4b", HUB, "model.language_model."),
        ("qwen3-vl-4b", COMFY, "model."),
        ("qwen2.5-vl-7b", COMFY, "model."),
        ("qwen2.5-vl-7b", HUB, "model.language_model."),
        ("gemma3-12b", OLD_HUB, "language_model.model."),
        ("mistral3", OLD_HUB, "language_model.model."),
        ("mistral3", HUB, "model.language_model."),
    ],
)
def test_language_models_with_vision(
    name: str, rules: tuple[tuple[str, str], ...], layout: str, tmp_path: Path
) -> None:
    model = TEXT_ENCODERS[name]
    state = shared(model.class_name, model.arguments)
    found = identify_state(renamed(state, rules), tmp_path / "x.safetensors")
    assert (found.role, found.family, found.layout) == (Role.TEXT_ENCODER, model.family, layout)
    assert (found.prefix, found.class_name) == (layout, model.class_name)
    assert differences(state, shared(found.class_name, found.config)) == []


@pytest.mark.parametrize("name", ["qwen3-4b", "gemma2-2b"])
def test_language_models_below_model(name: str, tmp_path: Path) -> None:
    model = TEXT_ENCODERS[name]
    state = {f"model.{key}": t for key, t in shared(model.class_name, model.arguments).items()}
    found = identify_state(state, tmp_path / "x.safetensors")
    assert (found.family, found.prefix, found.class_name) == (
        model.family,
        "model.",
        model.class_name,
    )


@pytest.mark.parametrize(
    ("name", "class_name"),
    [
        ("mistral3", "MistralModel"),
        ("gemma3-12b", "Gemma3TextModel"),
        ("qwen2.5-vl-7b", "Qwen2Model"),
    ],
)
def test_language_models_whose_vision_was_left_out(
    name: str, class_name: str, tmp_path: Path
) -> None:
    model = TEXT_ENCODERS[name]
    state = {
        key.replace("language_model.", "model.", 1): tensor
        for key, tensor in shared(model.class_name, model.arguments).items()
        if key.startswith("language_model.")
    }
    found = identify_state(state, tmp_path / "x.safetensors")
    assert (found.class_name, found.problems) == (class_name, ())
    own = {key.removeprefix("model."): tensor for key, tensor in state.items()}
    assert differences(own, shared(found.class_name, found.config)) == []


def test_umt5_in_the_layout_of_wan(tmp_path: Path) -> None:
    model = TEXT_ENCODERS["umt5-xxl"]
    state = dict(shared(model.class_name, model.arguments))
    del state["encoder.embed_tokens.weight"]
    rules = (
        (r"^shared\.", "token_embedding."),
        (r"^encoder\.final_layer_norm\.", "norm."),
        (r"^encoder\.block\.", "blocks."),
        (r"\.layer\.0\.SelfAttention\.relative_attention_bias\.", ".pos_embedding.embedding."),
        (r"\.layer\.0\.SelfAttention\.", ".attn."),
        (r"\.layer\.0\.layer_norm\.", ".norm1."),
        (r"\.layer\.1\.layer_norm\.", ".norm2."),
        (r"\.layer\.1\.DenseReluDense\.wi_0\.", ".ffn.gate.0."),
        (r"\.layer\.1\.DenseReluDense\.wi_1\.", ".ffn.fc1."),
        (r"\.layer\.1\.DenseReluDense\.wo\.", ".ffn.fc2."),
    )
    found = identify_state(renamed(state, rules), tmp_path / "x.safetensors")
    own = identify_state(state, tmp_path / "y.safetensors")
    assert (found.family, found.layout, found.config) == ("umt5", "original", own.config)


@pytest.mark.parametrize(
    ("model", "original"),
    [
        pytest.param(model, original, id=f"{kind}-{name}")
        for name, original in (
            ("hunyuan-video-1.5", hunyuan_video15.original_keys),
            ("hunyuan-video-1.5-meanflow", hunyuan_video15.original_keys),
            ("ace-step", original_layouts.ace_step),
        )
        for kind, models in (("real", DIFFUSION_MODELS), ("tiny", TINY))
        if (model := models.get(name))
    ],
)
def test_releases_without_a_converter(
    model: Model, original: Callable[[State], State], tmp_path: Path
) -> None:
    state = shared(model.class_name, model.arguments)
    found = identify_state(original(state), tmp_path / "x.safetensors")
    own = identify_state(state, tmp_path / "y.safetensors")
    assert (found.family, found.layout, found.config, found.problems) == (
        model.family,
        "original",
        own.config,
        (),
    )


@pytest.mark.parametrize("name", ["hunyuan-video", "hunyuan-video-1.5"])
def test_video_vaes_in_the_layout_of_ldm(name: str, tmp_path: Path) -> None:
    model = VAES[name]
    state = shared(model.class_name, model.arguments)
    found = identify_state(hunyuan_video15.original_vae_keys(state), tmp_path / "x.safetensors")
    own = identify_state(state, tmp_path / "y.safetensors")
    assert (found.family, found.layout, found.config) == (model.family, "original", own.config)


@pytest.mark.parametrize("prefix", ["", "control_model."])
def test_controlnet_in_its_first_layout(prefix: str, tmp_path: Path) -> None:
    model = OTHERS["sd15-controlnet"]
    state = shared(model.class_name, model.arguments)
    hints = [f"controlnet_cond_embedding.blocks.{index}." for index in range(6)]
    hints = ["controlnet_cond_embedding.conv_in.", *hints, "controlnet_cond_embedding.conv_out."]
    made = {}
    for name, tensor in stable_diffusion(dict(state)).items():
        new = re.sub(r"^controlnet_down_blocks\.(\d+)\.", r"zero_convs.\1.0.", name)
        new = new.replace("controlnet_mid_block.", "middle_block_out.0.")
        for index, hint in enumerate(hints):
            new = new.replace(hint, f"input_hint_block.{2 * index}.")
        made[prefix + new] = tensor
    found = identify_state(made, tmp_path / "x.safetensors")
    own = identify_state(state, tmp_path / "y.safetensors")
    assert (found.role, found.family, found.prefix) == (Role.CONTROLNET, "sd15", prefix)
    assert (found.layout, found.config) == ("original", own.config)


def test_a_fused_flux_2_norm_may_be_called_weight(tmp_path: Path) -> None:
    """Some exports write `query_norm.weight` in place of `query_norm.scale`."""
    model = DIFFUSION_MODELS["flux-2-klein-4b"]
    state = ORIGINAL[model.class_name](dict(shared(model.class_name, model.arguments)))
    renamed_state = renamed(state, ((r"_norm\.scale$", "_norm.weight"),))
    found = identify_state(renamed_state, tmp_path / "x.safetensors")
    assert (found.variant, found.problems) == ("klein-4b", ())


@pytest.mark.parametrize(
    ("part", "variant"),
    [
        ("casual_audio_encoder.encoder.conv.weight", "s2v-14b"),
        ("audio_proj.proj1.weight", "humo-14b"),
    ],
)
def test_kinds_of_wan_without_a_class(part: str, variant: str, tmp_path: Path) -> None:
    model = DIFFUSION_MODELS["wan-t2v-14b"]
    state = ORIGINAL[model.class_name](dict(shared(model.class_name, model.arguments)))
    found = identify_state({**state, part: torch.empty(8, device="meta")}, tmp_path / "x.sft")
    assert (found.family, found.variant, found.class_name) == ("wan", variant, "")
    assert (found.geometry["in_channels"], found.problems) == (16, ())
