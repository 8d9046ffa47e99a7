"""HunyuanVideo 1.5's names, real sizes and plans, its tiles, and what LoRA files change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from inline_core.families.autoencoders.hunyuan15 import HunyuanVae15Runtime, load_vae
from inline_core.families.autoencoders.hunyuan15_keys import hunyuan15_vae_sources
from inline_core.families.autoencoders.hunyuan15_spaces import HUNYUAN_15, tile_side
from inline_core.families.hunyuan_video15.components import adapted_model, load_denoiser
from inline_core.families.hunyuan_video15.family import HUNYUAN_VIDEO_15
from inline_core.families.hunyuan_video15.keys import TABLE
from inline_core.families.vision_encoders.siglip import load_vision
from tests import tiny
from tests.backends.conftest import make_bench
from tests.loras import latents_with, save_lora
from tests.plans import plan_of, plan_of_shapes
from tests.real_models import shapes_of, shared
from tests.real_sizes import plans
from tests.tiny_families import hunyuan_video15 as hunyuan
from tests.unit.families.hunyuan_video15.test_hunyuan_video15 import FAMILY, job
from tests.unit.loading.architectures.catalog_of_models import DIFFUSION_MODELS, VAES

LAYOUTS: dict[str, Any] = {
    "tencent": hunyuan.original_keys,
    "joined": lambda state: hunyuan.original_keys(state, joined=True),
    "comfy": hunyuan.comfy_keys,
    "diffusers": dict,
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_the_same_weights(layout: str, tmp_path: Path) -> None:
    state = hunyuan.transformer().state_dict()
    plan = plan_of(tiny.save(LAYOUTS[layout](state), tmp_path / "f.safetensors"))
    assert plan.identity.family == FAMILY
    loaded = load_denoiser(plan).module
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    assert loaded.config.rope_axes_dim == (4, 14, 14)


def test_a_folder_of_diffusers_has_the_same_weights(tmp_path: Path) -> None:
    model = hunyuan.transformer(rope_axes_dim=(8, 12, 12))
    model.save_pretrained(tmp_path / "transformer")
    tiny.settle(tmp_path)
    loaded = load_denoiser(plan_of(tmp_path / "transformer")).module
    state = model.state_dict()
    assert loaded.state_dict().keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.state_dict().items())
    # What its config says counts more than what shapes tell.
    assert tuple(loaded.config.rope_axes_dim) == (8, 12, 12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_real_sizes_in_every_layout(layout: str) -> None:
    model = DIFFUSION_MODELS["hunyuan-video-1.5"]
    state = shared(model.class_name, model.arguments)
    keys = LAYOUTS[layout](dict(state))
    found = plan_of_shapes(shapes_of(keys)).identity
    assert (found.family, found.geometry["mean_flow"]) == (FAMILY, 0)
    sources = TABLE.sources(keys, found.prefix)
    assert sources.keys() == state.keys()
    for name, source in sources.items():
        rows, *rest = keys[source.name].shape
        assert (rows // source.parts * source.span, *rest) == tuple(state[name].shape), name


def test_the_plans_of_real_sizes() -> None:
    found = plans(HUNYUAN_VIDEO_15, "hunyuan-video-1.5", ["qwen2.5-vl-7b"], "hunyuan-video-1.5")
    assert found.rungs[-1] == "resident"
    assert "wont-fit" not in found.rungs[1:]


@pytest.mark.parametrize("size", ["tiny", "real"])
def test_both_layouts_of_the_vae_have_the_same_weights(size: str) -> None:
    model = VAES["hunyuan-video-1.5"]
    real = shared(model.class_name, model.arguments)
    state = dict(real) if size == "real" else dict(hunyuan.vae().state_dict())
    original = hunyuan.original_vae_keys(state)
    assert original.keys() != state.keys()
    sources = hunyuan15_vae_sources(original, "")
    assert sources.keys() == state.keys()
    for name, source in sources.items():
        assert original[source.name] is state[name]
    assert hunyuan15_vae_sources(state, "").keys() == state.keys()


def test_a_folder_says_how_its_latents_are_scaled(tmp_path: Path) -> None:
    model = hunyuan.vae()
    model.register_to_config(scaling_factor=0.5)
    model.save_pretrained(tmp_path / "vae")
    tiny.settle(tmp_path)
    runtime = load_vae(plan_of(tmp_path / "vae"), HUNYUAN_15)
    assert runtime.scale == (0.5, 0.0)
    raw = torch.randn((1, 32, 1, 2, 2), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        assert torch.equal(runtime.decode_raw(raw), model.decode(raw / 0.5).sample)


@pytest.mark.parametrize(("frames", "side"), [(1, 256), (61, 256), (121, 192), (481, 128)])
def test_longer_videos_have_smaller_tiles(frames: int, side: int) -> None:
    assert tile_side(frames) == side


def test_large_pictures_are_made_in_tiles_as_diffusers_does() -> None:
    model = hunyuan.vae()
    runtime = HunyuanVae15Runtime(model, HUNYUAN_15)
    latents = torch.randn((1, 32, 1, 1, 20), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        tiled, whole = (runtime.decode_raw(latents, tiled=one) for one in (True, False))
        model.enable_tiling()
        wanted = model.decode(latents / HUNYUAN_15.scaling).sample
    assert torch.equal(tiled, wanted)
    assert (tiled - whole).abs().max() > 1e-4


def test_the_tower_sees_what_the_class_sees(tmp_path: Path) -> None:
    hunyuan.save_vision(tmp_path)
    plan = plan_of(tmp_path / "clip_vision/siglip.safetensors")
    assert plan.identity.family == "siglip-vision"
    tower = load_vision(plan)
    pixels = torch.randn((1, 3, 28, 28), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        ours = tower.model(pixel_values=pixels).last_hidden_state
        wanted = hunyuan.vision()(pixel_values=pixels).last_hidden_state
    assert (ours - wanted).abs().max() <= 1e-6


# Stem in the file, rows of the change, and the weight of joined q, k and v it changes.
SPELLINGS: list[tuple[str, str, tuple[int, int]]] = [
    ("transformer.transformer_blocks.0.attn.to_k", "double_blocks.0.img_attn_qkv", (32, 64)),
    ("lora_unet_double_blocks_1_img_attn_qkv", "double_blocks.1.img_attn_qkv", (0, 96)),
]


@pytest.mark.parametrize(("stem", "module", "rows"), SPELLINGS)
def test_a_lora_is_as_its_weights_added(
    tmp_path: Path, stem: str, module: str, rows: tuple[int, int]
) -> None:
    hunyuan.save_models(tmp_path)
    keys = hunyuan.original_keys(hunyuan.transformer().state_dict(), joined=True)
    weight = keys[f"{module}.weight"].clone()
    change = save_lora(tmp_path / "lora.safetensors", stem, (rows[1] - rows[0], weight.shape[1]))
    weight[rows[0] : rows[1]] += change
    changed = {**keys, f"{module}.weight": weight}
    tiny.save(changed, tmp_path / "diffusion_models/merged.safetensors")
    bench = make_bench(tmp_path)
    plain, merged = (
        job(bench, model=f"{name}.safetensors", cfg=1.0, negative=None, steps=1)
        for name in ("hunyuan", "merged")
    )
    wanted = bench.latents(merged)
    found = latents_with(bench, plain, tmp_path / "lora.safetensors")
    assert (bench.latents(plain) - wanted).abs().max() > 1e-3
    assert (found - wanted).abs().max() <= 1e-5
    assert bench.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_adapters_know_every_spelling_of_a_linear(layout: str, tmp_path: Path) -> None:
    """Whatever the layout of the model is."""
    keys = LAYOUTS[layout](hunyuan.transformer().state_dict())
    model = adapted_model(plan_of(tiny.save(keys, tmp_path / "f.safetensors")))
    for start, inner in (("img", "attn.to_"), ("txt", "attn.add_")):
        for ending in ("attn_qkv", "attn.qkv"):
            targets = model.targets[f"double_blocks.1.{start}_{ending}"]
            assert sorted((found.part, found.parts) for found in targets) == [
                (0, 3),
                (1, 3),
                (2, 3),
            ]
        (apart,) = model.targets[f"double_blocks.1.{start}_attn_v"]
        assert (apart.part, apart.parts) == (0, 1)
        assert apart.module.startswith(f"transformer_blocks.1.{inner}v")
    for name in ("img_mlp.fc1", "img_mlp.0"):
        assert model.targets[f"double_blocks.0.{name}"][0].module.endswith("0.ff.net.0.proj")
    for name in ("self_attn_qkv", "self_attn.qkv"):
        assert len(model.targets[f"txt_in.individual_token_refiner.blocks.0.{name}"]) == 3
    # The halves of its rows lie the other way round in original files.
    assert "norm_out.linear" in model.targets
    assert "final_layer.adaLN_modulation.1" not in model.targets
