from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inline_core.errors import ModelFileInvalid
from inline_core.loading import dequantize as module
from inline_core.loading.dequantize import dequantize, quantize_int8, rotate, split_rows
from inline_core.loading.header import Header, read_header
from inline_core.loading.packing import Packing, logical_tensors
from tests import packed_files

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I8": torch.int8,
    "U8": torch.uint8,
}
QKV = "layers.0.attention.qkv.weight"


def stored(header: Header, name: str) -> Tensor:
    """A tensor by its bytes: what a reader gives."""
    info = header.tensors[name]
    with header.path.open("rb") as file:
        file.seek(header.data_start + info.start)
        flat = torch.frombuffer(bytearray(file.read(info.size_bytes)), dtype=torch.uint8)
    dtype = DTYPES.get(info.dtype)
    return flat if dtype is None else flat.view(dtype).reshape(info.shape)


def parts_of(header: Header, packing: Packing) -> dict[str, Tensor]:
    return {part: stored(header, name) for part, name in packing.parts.items()}


def difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("layout", packed_files.WRITERS)
def test_weights_are_those_of_an_independent_formula(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = packed_files.shared(layout)
    header = read_header(file.path)
    packings = logical_tensors([header]).packings
    least = packed_files.WRITERS[layout][1]
    for name, packing in packings.items():
        parts = parts_of(header, packing)
        ours = dequantize(packing, parts, torch.float32)
        # Only a rotation sums, and sums round differently.
        spread = 1e-5 if packing.group_size else 0
        torch.testing.assert_close(ours, file.weights[name], rtol=1e-6, atol=spread)
        assert difference(ours, file.originals[name]) <= least
        rounded = dequantize(packing, parts, torch.bfloat16)
        assert torch.equal(rounded, ours.bfloat16())
    monkeypatch.setattr(module, "_CHUNK_VALUES", 1000)  # a few rows at a time
    name, packing = next(iter(packings.items()))
    in_rows = dequantize(packing, parts_of(header, packing), torch.float32)
    torch.testing.assert_close(in_rows, file.weights[name], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    "layout", [name for name in packed_files.WRITERS if name.split("_")[-1] != "K"]
)
def test_a_fused_projection_splits_into_what_its_whole_would(layout: str) -> None:
    file = packed_files.shared(layout)
    header = read_header(file.path)
    packing = logical_tensors([header]).packings[QKV]
    parts = parts_of(header, packing)
    whole = dequantize(packing, parts, torch.float32)
    for part, rows in enumerate(whole.chunk(3)):
        split = split_rows(packing, parts, part, 3)
        if layout == "fp8-blocks":
            assert split is None  # a scale is for 128 rows, a projection has 64
            continue
        assert split is not None
        assert split[0].shape == rows.shape
        assert torch.equal(dequantize(*split, torch.float32), rows)


@pytest.mark.parametrize("kind", packed_files.K_QUANTS)
def test_rows_of_k_quants_split(kind: str) -> None:
    blocks = torch.from_numpy(packed_files.random_blocks(kind, 12)).reshape(-1)
    packing = Packing("gguf", {"weight": "w"}, (6, 512), block=kind)
    whole = dequantize(packing, {"weight": blocks}, torch.float32)
    for part, rows in enumerate(whole.chunk(3)):
        split = split_rows(packing, {"weight": blocks}, part, 3)
        assert split is not None
        assert torch.equal(dequantize(*split, torch.float32), rows)


def test_block_scales_split_where_no_block_spans_the_border() -> None:
    weight = torch.randn(768, 200).to(torch.float8_e4m3fn)
    parts = {"weight": weight, "scale": torch.rand(6, 2) + 0.5}
    packing = Packing("fp8", {"weight": "w", "scale": "s"}, (768, 200))
    whole = dequantize(packing, parts, torch.float32)
    assert torch.equal(whole[130, 190], weight[130, 190].float() * parts["scale"][1, 1])
    split = split_rows(packing, parts, 1, 3)
    assert split is not None
    assert torch.equal(dequantize(*split, torch.float32), whole[256:512])
    assert split_rows(packing, parts, 0, 5) is None
    assert split_rows(packing, parts, 0, 4) is None


@pytest.mark.parametrize("shape", [(8, 4, 3, 3), (8,)])
def test_scales_also_belong_to_weights_that_are_no_matrix(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape).to(torch.float8_e5m2)
    scale = torch.tensor(0.5)
    packing = Packing("fp8", {"weight": "w", "scale": "s"}, shape)
    made = dequantize(packing, {"weight": weight, "scale": scale}, torch.float32)
    assert torch.equal(made, weight.float() * 0.5)
    assert split_rows(packing, {"weight": weight, "scale": scale}, 0, 1) is not None or shape == (
        8,
    )


def test_a_zero_point_is_taken_off() -> None:
    parts = {
        "weight": torch.tensor([[10, -10]], dtype=torch.int8),
        "scale": torch.tensor([[0.5]]),
        "zero_point": torch.tensor([[4]], dtype=torch.int8),
    }
    packing = Packing("int8", {name: name for name in parts}, (1, 2))
    assert dequantize(packing, parts, torch.float32).tolist() == [[3.0, -7.0]]


@pytest.mark.parametrize("size", [4, 16, 64, 256])
def test_a_rotation_undoes_itself(size: int) -> None:
    values = torch.randn(3, size * 2)
    turned = rotate(values, size)
    torch.testing.assert_close(turned.norm(), values.norm())
    torch.testing.assert_close(rotate(turned, size), values, rtol=1e-5, atol=1e-5)


def _torchao_configs() -> list[Any]:
    with packed_files.torchao_noise_ignored():
        from torchao.quantization import (  # type: ignore[import-untyped]
            Float8WeightOnlyConfig,
            Int8WeightOnlyConfig,
        )
    return [
        (Int8WeightOnlyConfig(version=2), "int8", 0.01),
        (Float8WeightOnlyConfig(), "fp8", 0.03),
    ]


@pytest.mark.parametrize("index", [0, 1])
def test_files_of_torchao(tmp_path: Path, index: int) -> None:
    config, form, least = _torchao_configs()[index]
    file = packed_files.torchao(tmp_path, config)
    header = read_header(file.path)
    found = logical_tensors([header])
    assert (found.problems, found.quantization) == ((), f"{form} (torchao)")
    shapes = {name: info.shape for name, info in found.tensors.items()}
    assert shapes == {name: tuple(tensor.shape) for name, tensor in file.plain.items()}
    assert found.packings.keys() == file.weights.keys()
    for name, packing in found.packings.items():
        ours = dequantize(packing, parts_of(header, packing), torch.float32)
        torch.testing.assert_close(ours, file.weights[name], rtol=1e-6, atol=0)
        assert difference(ours, file.originals[name]) <= least
    bare = packed_files.without(file, lambda name: name.endswith("_scale"), tmp_path / "y.sft")
    assert "without their scale (" in logical_tensors([read_header(bare)]).problems[0]


def test_other_granularities_of_torchao() -> None:
    with packed_files.torchao_noise_ignored():
        from torchao.quantization import (
            Int8WeightOnlyConfig,
            PerGroup,
            PerTensor,
            quantize_,
        )

        for granularity in (PerTensor(), PerGroup(32)):
            linear = torch.nn.Linear(128, 64, bias=False)
            quantize_(linear, Int8WeightOnlyConfig(granularity=granularity))
            theirs: Any = linear.weight
            parts = {"weight": theirs.qdata, "scale": theirs.scale}
            packing = Packing("int8", {name: name for name in parts}, (64, 128))
            ours = dequantize(packing, parts, torch.float32)
            torch.testing.assert_close(ours, theirs.dequantize(torch.float32))


def test_int8_of_a_weight() -> None:
    weight = torch.randn(300, 200) * torch.rand(300, 1)
    weight[7] = 0
    packing, parts = quantize_int8(weight.bfloat16())
    assert (packing.format, packing.shape) == ("int8", (300, 200))
    assert (parts["weight"].dtype, parts["scale"].dtype) == (torch.int8, torch.float32)
    assert (parts["weight"].shape, parts["scale"].shape) == ((300, 200), (300, 1))
    made = dequantize(packing, parts, torch.float32)
    assert difference(made, weight.bfloat16().float()) <= 0.02
    assert torch.equal(made[7], torch.zeros(200))


@settings(max_examples=50, deadline=None)
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    chunk=st.integers(1, 200),
    exponent=st.integers(-20, 20),
    seed=st.integers(0, 1000),
)
def test_int8_is_off_by_half_a_step_at_most(
    rows: int, columns: int, chunk: int, exponent: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator) * 2.0**exponent
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK_VALUES", chunk)
        packing, parts = quantize_int8(weight)
        made = dequantize(packing, parts, torch.float32)
    assert bool(((made - weight).abs() <= parts["scale"] * 0.5001).all())
    assert int(parts["weight"].abs().amax()) == 127


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_int8_refuses_what_is_not_finite(value: float) -> None:
    weight = torch.randn(4, 4)
    weight[2, 1] = value
    with pytest.raises(ModelFileInvalid, match="not finite"):
        quantize_int8(weight)


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 300), columns=st.integers(1, 20))
def test_scales_are_found_in_the_order_of_cublas(rows: int, columns: int) -> None:
    plain = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
    theirs = torch.from_numpy(packed_files.tiled(plain))
    assert torch.equal(module._untile(theirs, rows, columns), torch.from_numpy(plain))
    assert torch.equal(module._tile(torch.from_numpy(plain)), theirs)
