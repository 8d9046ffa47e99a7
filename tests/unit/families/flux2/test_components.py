from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import Flux2Transformer2DModel
from diffusers.loaders.single_file_utils import convert_flux2_transformer_checkpoint_to_diffusers

from inline_core.devices.placement import Placement
from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.flux2.components import adapted_model, load_denoiser
from inline_core.families.flux2.family import FLUX_2, workload
from inline_core.families.flux2.keys import TABLE
from inline_core.sampling.family import PassSize
from tests import tiny, tiny_flux2
from tests.plans import plan_of, plan_of_shapes

KLEIN = {
    "klein-4b": {"num_layers": 5, "num_single_layers": 20, "num_attention_heads": 24},
    "klein-9b": {"num_layers": 8, "num_single_layers": 24, "num_attention_heads": 32},
}
FEATURES = {"klein-4b": 2560, "klein-9b": 4096}


@pytest.mark.parametrize("variant", KLEIN)
@pytest.mark.parametrize("layout", ["original", "diffusers"])
def test_the_real_sizes_come_out_of_their_headers(layout: str, variant: str) -> None:
    features = FEATURES[variant]
    with torch.device("meta"):
        real: Any = Flux2Transformer2DModel(
            **KLEIN[variant], joint_attention_dim=3 * features, guidance_embeds=False
        )
        state = real.state_dict()
        keys = tiny_flux2.original_keys(state) if layout == "original" else state
    plan = plan_of_shapes({name: tuple(tensor.shape) for name, tensor in keys.items()})
    found = plan.identity
    assert found.variant == variant
    assert (found.geometry["in_channels"], found.geometry["cap_feat_dim"]) == (32, features)
    with torch.device("meta"):
        built: Any = Flux2Transformer2DModel(**found.config)
    sources = TABLE.sources(plan.files.tensors, found.prefix)
    wanted = {name: tuple(p.shape) for name, p in built.named_parameters()}
    assert wanted == {name: tuple(p.shape) for name, p in real.named_parameters()}
    assert wanted.keys() == sources.keys()
    for name, shape in wanted.items():
        rows, *rest = keys[sources[name].name].shape
        assert (rows // sources[name].parts, *rest) == shape
    work = workload(PassSize(found.geometry, 1024, 1024))
    inner = 128 * KLEIN[variant]["num_attention_heads"]
    assert work.denoise_values > 20 * inner * (4096 + 512)
    assert FLUX_2.guidance_input in found.config


def test_names_and_rows_agree_with_the_converter_of_diffusers(tmp_path: Path) -> None:
    state = tiny_flux2.transformer(guidance_embeds=True).state_dict()
    keys = tiny_flux2.original_keys(state)
    converted = convert_flux2_transformer_checkpoint_to_diffusers(dict(keys))
    assert converted.keys() == TABLE.sources(keys, "").keys()
    file = tiny.save(keys, tmp_path / "f.safetensors")
    loaded = load_denoiser(plan_of(file)).module.state_dict()
    for name, tensor in converted.items():
        assert torch.equal(loaded[name], tensor), name


@pytest.mark.parametrize("layout", ["original", "model.diffusion_model.", "diffusers", "folder"])
def test_every_layout_loads_bit_equal(tmp_path: Path, layout: str) -> None:
    model = tiny_flux2.transformer()
    state = model.state_dict()
    path = tmp_path / "klein.safetensors"
    if layout == "folder":
        path = tmp_path / "transformer"
        model.save_pretrained(path)
    elif layout == "diffusers":
        tiny.save(state, path)
    else:
        tiny.save(tiny_flux2.original_keys(state, layout.replace("original", "")), path)
    loaded = load_denoiser(plan_of(path)).module.state_dict()
    assert loaded.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(loaded[name], tensor), name


@pytest.mark.parametrize("layout", ["original", "diffusers"])
def test_int8_is_close_and_keeps_the_swapped_matrix_whole(tmp_path: Path, layout: str) -> None:
    state = tiny_flux2.transformer(attention_head_dim=32).state_dict()
    keys = tiny_flux2.original_keys(state) if layout == "original" else state
    file = tiny.save(keys, tmp_path / "f.safetensors")
    module = load_denoiser(plan_of(file, Placement("cpu", "float32", quantization="int8"))).module
    assert type(module.single_transformer_blocks[0].attn.to_out) is not torch.nn.Linear
    assert torch.equal(module.norm_out.linear.weight, state["norm_out.linear.weight"])


def test_adapters_find_every_spelling(tmp_path: Path) -> None:
    file = tiny.save(
        tiny_flux2.original_keys(tiny_flux2.transformer().state_dict()), tmp_path / "f.safetensors"
    )
    model = adapted_model(plan_of(file))
    fused = model.targets["double_blocks.0.txt_attn.qkv"]
    assert [(target.module, target.part, target.parts) for target in fused] == [
        ("transformer_blocks.0.attn.add_q_proj", 0, 3),
        ("transformer_blocks.0.attn.add_k_proj", 1, 3),
        ("transformer_blocks.0.attn.add_v_proj", 2, 3),
    ]
    for one, other in (
        ("single_blocks.1.linear1", "single_transformer_blocks.1.attn.to_qkv_mlp_proj"),
        ("double_blocks.0.img_mlp.2", "transformer_blocks.0.ff.linear_out"),
        ("final_layer.linear", "proj_out"),
        ("img_in", "x_embedder"),
    ):
        assert model.targets[one] == model.targets[other]
    assert "norm_out.linear" in model.targets
    assert "final_layer.adaLN_modulation.1" not in model.targets
    assert model.shapes["transformer_blocks.0.attn.to_k.weight"] == (32, 32)


@pytest.mark.parametrize("quantization", ["none", "packed"])
@torch.inference_mode()
def test_scaled_fp8_gives_what_its_numbers_say(tmp_path: Path, quantization: Any) -> None:
    keys = tiny_flux2.original_keys(tiny_flux2.transformer().state_dict())
    small, plain = {"scaled_fp8": torch.zeros(2, dtype=torch.float8_e4m3fn)}, {}
    for name, tensor in keys.items():
        if not name.endswith(".weight") or tensor.ndim != 2:
            small[name] = plain[name] = tensor
            continue
        scale = tensor.abs().max() / 448
        small[name] = (tensor / scale).to(torch.float8_e4m3fn)
        small[name.removesuffix("weight") + "scale_weight"] = scale
        plain[name] = small[name].float() * scale
    packed = tiny.save(small, tmp_path / "fp8.safetensors")
    whole = tiny.save(plain, tmp_path / "plain.safetensors")
    placement = Placement("cpu", "float32", quantization)
    generator = torch.Generator().manual_seed(1)
    latents = torch.randn((1, 128, 4, 4), generator=generator)
    prompt = EncodedPrompt(torch.randn((64, 3 * tiny_flux2.HIDDEN), generator=generator))
    found, wanted = (
        load_denoiser(plan).predict(latents, torch.tensor([0.7]), [prompt])
        for plan in (plan_of(packed, placement), plan_of(whole))
    )
    assert (wanted - latents).std() > 0.05
    assert torch.allclose(found, wanted, atol=1e-5)
