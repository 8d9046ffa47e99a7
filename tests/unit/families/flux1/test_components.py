"""FLUX.1's names, real sizes and plans, and what LoRA files of every spelling change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inline_core.families.flux1.components import adapted_model
from inline_core.families.flux1.family import FLUX_1
from inline_core.families.flux1.keys import TABLE
from inline_core.families.flux1.references import as_control, as_reference
from inline_core.media.values import Image
from tests import tiny
from tests.backends.conftest import make_bench
from tests.loras import latents_with, save_lora
from tests.plans import plan_of
from tests.real_sizes import check_layouts, plans
from tests.tiny_families import flux1


@pytest.mark.parametrize("name", ["flux-1-dev", "flux-1-schnell", "flux-1-fill", "flux-1-control"])
def test_real_sizes_in_both_layouts(name: str) -> None:
    check_layouts(name, lambda _: TABLE)


def test_the_plans_of_real_sizes() -> None:
    found = plans(FLUX_1, "flux-1-dev", ["clip-l", "t5-xxl"], "kl-16").rungs
    assert found == ["offload", "int8", "int8", "resident"]


# Stem in the file, rows of the change, and the weight of the original layout it changes.
SPELLINGS: list[tuple[str, str, tuple[int, int]]] = [
    ("transformer.transformer_blocks.0.attn.to_k", "double_blocks.0.img_attn.qkv", (32, 64)),
    ("transformer.single_transformer_blocks.1.proj_mlp", "single_blocks.1.linear1", (96, 224)),
    ("diffusion_model.single_blocks.1.linear1", "single_blocks.1.linear1", (0, 224)),
    ("lora_unet_double_blocks_1_txt_attn_qkv", "double_blocks.1.txt_attn.qkv", (0, 96)),
    ("lora_unet_double_blocks_0_img_mlp_2", "double_blocks.0.img_mlp.2", (0, 32)),
    ("lora_transformer_transformer_blocks_0_ff_net_2", "double_blocks.0.img_mlp.2", (0, 32)),
]


@pytest.mark.parametrize(("stem", "module", "rows"), SPELLINGS)
def test_a_lora_is_as_its_weights_added(
    tmp_path: Path, stem: str, module: str, rows: tuple[int, int]
) -> None:
    keys = flux1.original_keys(flux1.transformer().state_dict())
    weight = keys[f"{module}.weight"]
    change = save_lora(tmp_path / "lora.safetensors", stem, (rows[1] - rows[0], weight.shape[1]))
    tiny.save(keys, tmp_path / "models/diffusion_models/dev.safetensors")
    flux1.save_rest(tmp_path / "models")
    keys[f"{module}.weight"] = weight.clone()
    keys[f"{module}.weight"][rows[0] : rows[1]] += change
    tiny.save(keys, tmp_path / "models/diffusion_models/merged.safetensors")
    bench = make_bench(tmp_path / "models")
    plain, merged = (
        bench.latents(bench.job(family="flux-1", model=f"{name}.safetensors"))
        for name in ("dev", "merged")
    )
    job = bench.job(family="flux-1", model="dev.safetensors")
    found = latents_with(bench, job, tmp_path / "lora.safetensors")
    assert (plain - merged).abs().max() > 0.01
    assert (found - merged).abs().max() <= 1e-5
    assert bench.close()


def test_what_lies_the_other_way_round_has_one_name_only(tmp_path: Path) -> None:
    keys = flux1.original_keys(flux1.transformer().state_dict())
    model = adapted_model(plan_of(tiny.save(keys, tmp_path / "f.safetensors")))
    assert "norm_out.linear" in model.targets
    assert "final_layer.adaLN_modulation.1" not in model.targets


def picture(width: int, height: int) -> Image:
    values: Any = np.arange(width * height * 3, dtype=np.uint32).reshape(height, width, 3) % 251
    return Image(values.astype(np.uint8))


@pytest.mark.parametrize(
    ("size", "wanted"),
    [((300, 200), (1248, 832)), ((64, 64), (1024, 1024)), ((100, 700), (672, 1568))],
)
def test_pictures_for_kontext_have_trained_sizes(
    size: tuple[int, int], wanted: tuple[int, int]
) -> None:
    found = as_reference(picture(*size))
    assert (found.width, found.height) == wanted


def test_pictures_of_edges_keep_their_size() -> None:
    found = as_control(picture(70, 50))
    assert found.pixels.shape == (48, 64, 3)
    assert np.array_equal(found.pixels, picture(70, 50).pixels[1:49, 3:67])
    with pytest.raises(Exception, match="too small"):
        as_control(picture(70, 15))
