"""Chroma's names, real sizes and plans, and what LoRA files of every spelling change."""

from __future__ import annotations

from pathlib import Path

import pytest

from inline_core.families.chroma.family import CHROMA
from inline_core.families.chroma.keys import TABLE
from tests import original_layouts, tiny
from tests.backends.conftest import make_bench
from tests.loras import latents_with, save_lora
from tests.real_sizes import check_layouts, plans
from tests.tiny_families import chroma


def test_the_real_size_in_both_layouts() -> None:
    check_layouts("chroma", lambda _: TABLE)


def test_the_plans_of_the_real_size() -> None:
    found = plans(CHROMA, "chroma", ["t5-xxl"], "kl-16").rungs
    assert found == ["offload", "int8", "resident", "resident"]


@pytest.mark.parametrize(
    ("stem", "module", "rows"),
    [
        ("transformer.transformer_blocks.0.attn.to_q", "double_blocks.0.img_attn.qkv", (0, 32)),
        (
            "lora_unet_distilled_guidance_layer_layers_1_in_layer",
            "distilled_guidance_layer.layers.1.in_layer",
            (0, 24),
        ),
        ("diffusion_model.single_blocks.0.linear2", "single_blocks.0.linear2", (0, 32)),
    ],
)
def test_a_lora_is_as_its_weights_added(
    tmp_path: Path, stem: str, module: str, rows: tuple[int, int]
) -> None:
    chroma.save_models(tmp_path / "models")
    keys = original_layouts.flux_1(dict(chroma.transformer().state_dict()))
    weight = keys[f"{module}.weight"].clone()
    change = save_lora(tmp_path / "lora.safetensors", stem, (rows[1] - rows[0], weight.shape[1]))
    weight[rows[0] : rows[1]] += change
    merged = {**keys, f"{module}.weight": weight}
    tiny.save(merged, tmp_path / "models/diffusion_models/merged.safetensors")
    bench = make_bench(tmp_path / "models")
    jobs = [
        bench.job(family="chroma", model=f"{name}.safetensors", steps=2)
        for name in ("chroma", "merged")
    ]
    plain, wanted = (bench.latents(job) for job in jobs)
    found = latents_with(bench, jobs[0], tmp_path / "lora.safetensors")
    assert (plain - wanted).abs().max() > 0.01
    assert (found - wanted).abs().max() <= 1e-5
    assert bench.close()
