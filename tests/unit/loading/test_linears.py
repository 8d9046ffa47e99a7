from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from diffusers.hooks import apply_group_offloading
from diffusers.hooks.group_offloading import ModuleGroup
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from inline_core.loading.dequantize import dequantize, quantize_int8
from inline_core.loading.header import read_header
from inline_core.loading.linears import PackedLinear, replace_linear
from inline_core.loading.packing import Packing, logical_tensors
from tests import packed_files, tiny
from tests.unit.loading.test_dequantize import parts_of

if TYPE_CHECKING:
    from pathlib import Path

HALF_ERROR = {torch.float32: 1e-5, torch.bfloat16: 0.006, torch.float16: 0.002}


def int8_linear(
    rows: int = 48, columns: int = 32, *, bias: bool = True, seed: int = 0
) -> PackedLinear:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator)
    return PackedLinear(*quantize_int8(weight), torch.randn(rows) if bias else None)


def packed_model(dtype: torch.dtype = torch.float32) -> Any:
    """The tiny Z-Image with every linear in int8, the ones outside of blocks as well."""
    model = tiny.transformer().to(dtype)
    for name, linear in list(model.named_modules()):
        if type(linear) is nn.Linear:
            packed = PackedLinear(*quantize_int8(linear.weight.detach()), linear.bias)
            replace_linear(model, name, packed)
    return model


def spoil(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()


def predicted(model: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    latents = torch.randn(16, 1, 8, 8, generator=generator).to(dtype)
    features = torch.randn(7, tiny.CAP_FEAT_DIM, generator=generator).to(dtype)
    with torch.inference_mode():
        made: Tensor = model([latents], torch.tensor([0.4]), [features], return_dict=False)[0][0]
    return made


def difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours.float() - theirs.float()).norm() / theirs.float().norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", packed_files.WRITERS)
def test_the_product_is_that_of_the_dequantized_weight(layout: str, dtype: torch.dtype) -> None:
    header = read_header(packed_files.shared(layout).path)
    for packing in list(logical_tensors([header]).packings.values())[:1]:
        parts = parts_of(header, packing)
        weight = dequantize(packing, parts, torch.float32)
        rows, columns = packing.shape
        generator = torch.Generator().manual_seed(5)
        x = torch.randn(2, 5, columns, generator=generator).to(dtype)
        bias = torch.randn(rows, generator=generator).to(dtype)
        for used in (bias, None):
            linear = PackedLinear(packing, parts, used)
            exact = functional.linear(x.float(), weight, None if used is None else used.float())
            made = linear(x)
            assert (made.dtype, made.shape) == (dtype, (2, 5, rows))
            assert difference(made, exact) < HALF_ERROR[dtype]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("form", ["int8", "fp8"])
def test_half_precision_does_not_overflow(
    form: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inline_core.loading.linears._multiplies_halves", lambda: native)
    weight = torch.full((8, 4096), 0.01)
    if form == "int8":
        packing, parts = quantize_int8(weight)
    else:
        parts = {
            "weight": (weight * 44800).to(torch.float8_e4m3fn),
            "scale": torch.tensor(1 / 44800),
        }
        packing = Packing("fp8", {name: name for name in parts}, (8, 4096))
    made = PackedLinear(packing, parts, None)(torch.full((2, 4096), 100.0, dtype=torch.float16))
    torch.testing.assert_close(made.float(), torch.full((2, 8), 4096.0), rtol=0.002, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("native", [True, False])
def test_both_ways_to_multiply_agree(
    dtype: torch.dtype, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inline_core.loading.linears._multiplies_halves", lambda: native)
    linear = int8_linear(64, 256)
    x = torch.randn(9, 256).to(dtype)
    assert linear.bias is not None
    exact = functional.linear(x.float(), linear.dequantized(torch.float32), linear.bias)
    assert difference(linear(x), exact) < HALF_ERROR[dtype]


def test_a_cast_of_the_parent_leaves_what_is_packed() -> None:
    weight = (torch.randn(48, 32)).to(torch.float8_e4m3fn)
    parts = {"weight": weight, "scale": torch.rand(48, 1)}
    fp8 = PackedLinear(
        Packing("fp8", {name: name for name in parts}, (48, 32)), parts, torch.ones(48)
    )
    parent = nn.Sequential(int8_linear(32, 32), fp8)
    layers: list[Any] = list(parent)
    before = [layer.dequantized(torch.float32) for layer in layers]
    for cast in (nn.Module.half, nn.Module.bfloat16, nn.Module.double, nn.Module.float):
        cast(parent)
        assert {name: part.dtype for name, part in fp8.parts.items()} == {
            "weight": torch.float8_e4m3fn,
            "scale": torch.float32,
        }
        for layer, value in zip(layers, before, strict=True):
            assert torch.equal(layer.dequantized(torch.float32), value)
    parent.to(torch.bfloat16)
    assert fp8.bias is not None
    assert (fp8.bias.dtype, fp8.compute_dtype) == (torch.bfloat16, torch.bfloat16)


def test_code_that_asks_for_the_weight() -> None:
    linear = int8_linear()
    assert not linear.weight.dtype.is_floating_point
    assert linear.weight.device.type == "cpu"
    assert int8_linear(bias=False).compute_dtype is None
    assert "in_features=32, out_features=48, bias=True, packing=int8" in repr(linear)
    assert linear.to("meta").weight.is_meta


def test_models_compute_in_the_precision_of_what_is_not_packed() -> None:
    model = packed_model(dtype=torch.bfloat16)
    assert model.dtype is torch.bfloat16
    assert predicted(model, torch.bfloat16).dtype is torch.bfloat16
    encoder = tiny.text_encoder().to(torch.bfloat16)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        plain = encoder(ids).last_hidden_state
    for name, linear in list(encoder.named_modules()):
        if type(linear) is nn.Linear:
            packed = PackedLinear(*quantize_int8(linear.weight.detach()), linear.bias)
            replace_linear(encoder, name, packed)
    assert encoder.dtype is torch.bfloat16
    with torch.inference_mode():
        assert difference(encoder(ids).last_hidden_state, plain) < 0.06


def test_a_packed_model_predicts_nearly_the_same() -> None:
    assert difference(predicted(packed_model()), predicted(tiny.transformer())) < 0.05


def test_saving_and_mapping(tmp_path: Path) -> None:
    model = packed_model()
    expected = predicted(model)
    save_file(model.state_dict(), tmp_path / "x.safetensors")
    other = packed_model()
    spoil(other)
    other.load_state_dict(load_file(tmp_path / "x.safetensors"), assign=True)  # mapped
    assert torch.equal(predicted(other), expected)


def test_copying() -> None:
    model = packed_model()
    expected = predicted(model)
    copied = copy.deepcopy(model)
    spoil(model)
    assert torch.equal(predicted(copied), expected)


@pytest.mark.parametrize("kind", ["block_level", "leaf_level"])
@pytest.mark.parametrize("disk", [False, True])
def test_group_offload(tmp_path: Path, kind: str, disk: bool) -> None:
    model = packed_model()
    expected = predicted(model)
    apply_group_offloading(
        model,
        onload_device=torch.device("cpu"),
        offload_type=kind,
        num_blocks_per_group=1 if kind == "block_level" else None,
        offload_to_disk_path=str(tmp_path) if disk else None,
    )
    assert torch.equal(predicted(model), expected)
    assert torch.equal(predicted(model), expected)


def test_streamed_offload_frees_what_is_packed() -> None:
    """With a stream diffusers puts back a module's parameters, but not its buffers."""

    class Buffered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("packed", torch.zeros(4, dtype=torch.int8))

    linear, buffered = int8_linear(), Buffered()
    cpu = torch.device("cpu")
    group = ModuleGroup(
        [linear, buffered], cpu, cpu, linear, low_cpu_mem_usage=True, record_stream=True
    )
    tensors: list[Any] = [*linear.parameters(), buffered.packed]
    group.stream = object()
    group.cpu_param_dict = {tensor: tensor.data for tensor in tensors}
    for tensor in tensors:
        tensor.data = tensor.data.clone()  # as if moved to the device
    group.offload_()
    back = [tensor.data_ptr() == group.cpu_param_dict[tensor].data_ptr() for tensor in tensors]
    assert back == [True, True, True, False]


def test_hooks_see_a_plain_output() -> None:
    """Adapters are forward hooks that add to the output."""
    linear = int8_linear()
    x = torch.randn(3, 32)
    plain = linear(x)
    down, up = torch.randn(4, 32), torch.randn(48, 4)

    def adapter(_module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        return output + 0.5 * inputs[0] @ down.T @ up.T

    hook = linear.register_forward_hook(adapter)
    torch.testing.assert_close(linear(x), plain + 0.5 * x @ down.T @ up.T)
    hook.remove()
    assert torch.equal(linear(x), plain)


@pytest.mark.parametrize("form", ["int8", "int8_convrot", "fp8"])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gradients_reach_what_came_before(
    form: Any, native: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inline_core.loading.linears._multiplies_halves", lambda: native)
    parts = {"weight": torch.randint(-9, 9, (48, 64)).to(torch.int8), "scale": torch.rand(48, 1)}
    if form == "fp8":
        parts["weight"] = parts["weight"].to(torch.float8_e4m3fn)
    group = 16 if form == "int8_convrot" else 0
    packing = Packing(form, {name: name for name in parts}, (48, 64), group)
    linear = PackedLinear(packing, parts, torch.randn(48))
    with torch.inference_mode():
        linear(torch.randn(3, 64).to(dtype))  # what it keeps must serve outside as well
    x = torch.randn(3, 64).to(dtype).requires_grad_()
    linear(x).sum().backward()
    expected = linear.dequantized(torch.float32).sum(0).expand(3, 64)
    torch.testing.assert_close(x.grad, expected.to(dtype), rtol=0.01, atol=0.1)
    assert not any(parameter.requires_grad for parameter in linear.parameters())


def test_another_size_cannot_take_its_place() -> None:
    parent = nn.Sequential(nn.Linear(32, 47)).eval()
    with pytest.raises(ValueError, match=r"\(32, 47\) features, the packed one \(32, 48\)"):
        replace_linear(parent, "0", int8_linear())
    parent = nn.Sequential(nn.Sequential(nn.Linear(32, 48))).eval()
    replace_linear(parent, "0.0", int8_linear())
    new = parent.get_submodule("0.0")
    assert isinstance(new, PackedLinear)
    assert not new.training
