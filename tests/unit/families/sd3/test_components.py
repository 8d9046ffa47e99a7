"""SD3's names, real sizes and plans, and what LoRA files of every spelling change."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from inline_core.devices.placement import Placement
from inline_core.families.sd3.components import adapted_model, load_denoiser
from inline_core.families.sd3.family import SD3
from inline_core.families.sd3.keys import key_table
from tests import original_layouts, tiny
from tests.backends.conftest import make_bench
from tests.loras import latents_with, save_lora
from tests.plans import plan_of
from tests.real_sizes import check_layouts, plans
from tests.tiny_families import sd3

PLANS = {
    "sd3-medium": ["resident"] * 4,
    "sd3.5-medium": ["resident"] * 4,
    "sd3.5-large": ["offload", "int8", "resident", "resident"],
}


@pytest.mark.parametrize("name", PLANS)
def test_real_sizes_in_both_layouts(name: str) -> None:
    check_layouts(name, lambda config: key_table(config["num_layers"]))


@pytest.mark.parametrize("name", PLANS)
def test_the_plans_of_real_sizes(name: str) -> None:
    assert plans(SD3, name, ["clip-l", "clip-g", "t5-xxl"], "kl-16").rungs == PLANS[name]


def test_names_and_rows_agree_with_the_converter_of_diffusers(tmp_path: Path) -> None:
    keys = sd3.original_keys(sd3.transformer().state_dict())
    loaded = load_denoiser(plan_of(tiny.save(keys, tmp_path / "f.safetensors"))).module.state_dict()
    converted = original_layouts.converted("SD3Transformer2DModel", keys, {})
    assert converted.keys() == loaded.keys()
    for name, tensor in converted.items():
        assert torch.equal(loaded[name], tensor), name


def test_int8_keeps_the_swapped_matrices_whole(tmp_path: Path) -> None:
    model = sd3.transformer()
    file = tiny.save(sd3.original_keys(model.state_dict()), tmp_path / "f.safetensors")
    module = load_denoiser(plan_of(file, Placement("cpu", "float32", quantization="int8"))).module
    last = module.transformer_blocks[-1]
    assert type(last.ff.net[2]) is not torch.nn.Linear
    wanted = model.transformer_blocks[-1].norm1_context.linear.weight
    assert torch.equal(last.norm1_context.linear.weight, wanted)


SPELLINGS: list[tuple[str, str, tuple[int, int]]] = [
    ("transformer.transformer_blocks.1.attn.to_v", "joint_blocks.1.x_block.attn.qkv", (64, 96)),
    ("transformer.transformer_blocks.0.attn2.to_q", "joint_blocks.0.x_block.attn2.qkv", (0, 32)),
    ("diffusion_model.joint_blocks.0.x_block.mlp.fc1", "joint_blocks.0.x_block.mlp.fc1", (0, 128)),
    (
        "lora_unet_joint_blocks_1_context_block_attn_qkv",
        "joint_blocks.1.context_block.attn.qkv",
        (0, 96),
    ),
]


@pytest.mark.parametrize(("stem", "module", "rows"), SPELLINGS)
def test_a_lora_is_as_its_weights_added(
    tmp_path: Path, stem: str, module: str, rows: tuple[int, int]
) -> None:
    sd3.save_models(tmp_path / "models")
    keys = sd3.original_keys(sd3.transformer().state_dict())
    weight = keys[f"{module}.weight"].clone()
    change = save_lora(tmp_path / "lora.safetensors", stem, (rows[1] - rows[0], weight.shape[1]))
    weight[rows[0] : rows[1]] += change
    merged = {**keys, f"{module}.weight": weight}
    tiny.save(merged, tmp_path / "models/diffusion_models/merged.safetensors")
    bench = make_bench(tmp_path / "models")
    jobs = [
        bench.job(family="sd3", model=f"{name}.safetensors", steps=2)
        for name in ("sd3.5", "merged")
    ]
    plain, wanted = (bench.latents(job) for job in jobs)
    found = latents_with(bench, jobs[0], tmp_path / "lora.safetensors")
    assert (plain - wanted).abs().max() > 0.01
    assert (found - wanted).abs().max() <= 1e-5
    assert bench.close()


def test_what_lies_the_other_way_round_has_one_name_only(tmp_path: Path) -> None:
    keys = sd3.original_keys(sd3.transformer().state_dict())
    model = adapted_model(plan_of(tiny.save(keys, tmp_path / "f.safetensors")))
    assert "transformer_blocks.2.norm1_context.linear" in model.targets
    assert "joint_blocks.2.context_block.adaLN_modulation.1" not in model.targets
    assert "joint_blocks.1.context_block.adaLN_modulation.1" in model.targets
