"""Pre-quantized files as whole models: identified, loaded both ways, refused without their scales."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from inline_core.devices.placement import Placement
from inline_core.errors import ModelFileInvalid
from inline_core.families.z_image.components import load_denoiser
from inline_core.families.z_image.text import EncodedPrompt
from inline_core.loading.linears import PackedLinear
from inline_core.loading.reader import TensorReader
from tests import packed_files, tiny
from tests.plans import FLOAT32, plan_of

PACKED = Placement("cpu", "float32", "packed")
SCALED = [
    name for name in packed_files.WRITERS if not name.startswith("gguf") and "int8" not in name
]


@torch.inference_mode()
def predict(path: Path, placement: Placement = FLOAT32) -> torch.Tensor:
    denoiser = load_denoiser(plan_of(path, placement))
    generator = torch.Generator().manual_seed(1)
    latents = torch.randn((2, 16, 8, 8), generator=generator)
    texts = [
        EncodedPrompt(torch.randn((length, tiny.CAP_FEAT_DIM), generator=generator))
        for length in (5, 9)
    ]
    return denoiser.predict(latents, torch.tensor([0.9, 0.4]), texts) - latents


def unpacked(file: packed_files.PackedFile, path: Path) -> Path:
    """The same model as a plain float32 file: what is not packed keeps the file's rounding."""
    plan = plan_of(file.path)
    with TensorReader(plan.files, "x") as reader:
        rest = {
            name: reader.mapped(name).float().reshape(info.shape)
            for name, info in plan.logical.tensors.items()
            if name not in plan.logical.packings
        }
    return tiny.save({**rest, **file.weights}, path)


def distance(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left - right).norm() / right.norm())


@pytest.mark.parametrize("layout", packed_files.WRITERS)
def test_the_output_is_that_of_the_unpacked_weights(layout: str, tmp_path: Path) -> None:
    file = packed_files.shared(layout)
    found = plan_of(file.path).identity
    assert (found.family, found.problems) == ("z-image", ())
    assert found.quantization
    assert found.geometry["dim"] == 64
    wanted = predict(unpacked(file, tmp_path / "whole.safetensors"))
    assert distance(predict(file.path), wanted) < 1e-5
    assert distance(predict(file.path, PACKED), wanted) < 1e-5
    _, weight_error = packed_files.WRITERS[layout]
    if math.isfinite(weight_error):
        original = tiny.save({**file.plain, **file.originals}, tmp_path / "plain.safetensors")
        # Some layers deep, errors of the weights add up a little.
        assert distance(wanted, predict(original)) < 3 * weight_error


@pytest.mark.parametrize("layout", ["comfy-fp8", "comfy-int8-rows", "comfy-nvfp4", "gguf-Q4_K"])
def test_kept_packed_it_takes_the_memory_of_the_file(layout: str) -> None:
    file = packed_files.shared(layout)
    model: Any = load_denoiser(plan_of(file.path, PACKED)).module
    packed = [module for module in model.modules() if isinstance(module, PackedLinear)]
    assert packed
    for linear in packed:
        held = sum(
            tensor.numel() * tensor.element_size()
            for name, tensor in linear.state_dict().items()
            if name != "bias"
        )
        assert held < 0.3 * 4 * linear.in_features * linear.out_features


def test_what_is_packed_is_never_quantized_again() -> None:
    file = packed_files.shared("comfy-fp8")
    model: Any = load_denoiser(plan_of(file.path, Placement("cpu", "float32", "int8"))).module
    names = {name for name in file.weights if ".attention.qkv" not in name}
    assert names
    for name, module in model.named_modules():
        if isinstance(module, PackedLinear):
            assert f"{name}.weight" not in names


@pytest.mark.parametrize("layout", SCALED)
def test_without_its_scales_it_is_refused_by_name(layout: str, tmp_path: Path) -> None:
    file = packed_files.shared(layout)
    bare = packed_files.without(file, packed_files.is_scale, tmp_path / "bare.safetensors")
    plan = plan_of(bare)
    if layout in {"fp8-scaled-unmarked", "fp8-blocks"}:
        return  # nothing in the file tells it from a straight cast any more
    assert plan.identity.problems
    with pytest.raises(ModelFileInvalid, match="scale"):
        load_denoiser(plan)


@pytest.mark.parametrize("kind", ["Int8WeightOnlyConfig", "Float8WeightOnlyConfig"])
def test_a_model_that_torchao_saved(kind: str, tmp_path: Path) -> None:
    with packed_files.torchao_noise_ignored():
        from torchao import quantization  # type: ignore[import-untyped]

        file = packed_files.torchao(tmp_path, getattr(quantization, kind)(version=2))
    assert plan_of(file.path).identity.problems == ()
    wanted = predict(unpacked(file, tmp_path / "whole.safetensors"))
    assert distance(predict(file.path), wanted) < 1e-5
    assert distance(predict(file.path, PACKED), wanted) < 1e-5
