from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from inline_core.loading.header import read_header
from inline_core.loading.packing import LogicalTensors, logical_tensors
from tests import packed_files, tiny

if TYPE_CHECKING:
    from pathlib import Path

QUANTIZATION = {
    "fp8-scaled": "fp8 (scaled)",
    "fp8-scaled-unmarked": "fp8 (scaled)",
    "fp8-blocks": "fp8 (scaled)",
    "comfy-fp8": "fp8 (comfy_quant)",
    "comfy-fp8-metadata": "fp8 (comfy_quant)",
    "comfy-fp8-e5m2": "fp8 (comfy_quant)",
    "comfy-int8": "int8 (comfy_quant)",
    "comfy-int8-rows": "int8 (comfy_quant)",
    "comfy-int8-convrot": "int8 (comfy_quant, convrot)",
    "comfy-int8-convrot-64": "int8 (comfy_quant, convrot)",
    "comfy-nvfp4": "nvfp4 (comfy_quant)",
    "comfy-nvfp4-metadata": "nvfp4 (comfy_quant)",
    "comfy-mxfp8": "mxfp8 (comfy_quant)",
    "comfy-mxfp8-bytes": "mxfp8 (comfy_quant)",
}


def described(path: Path) -> LogicalTensors:
    return logical_tensors([read_header(path)])


def problem(tensors: dict[str, torch.Tensor], folder: Path, **metadata: str) -> str:
    found = described(tiny.save(tensors, folder / "x.safetensors", metadata))
    assert len(found.problems) == 1, found.problems
    return found.problems[0]


@pytest.mark.parametrize("layout", packed_files.WRITERS)
def test_names_and_shapes_are_those_of_the_plain_file(layout: str) -> None:
    file = packed_files.shared(layout)
    found = described(file.path)
    assert found.problems == ()
    shapes = {name: info.shape for name, info in found.tensors.items()}
    assert shapes == {name: tuple(tensor.shape) for name, tensor in file.plain.items()}
    assert found.packings.keys() == file.weights.keys()
    assert len(found.packings) > 1
    assert all(found.packings[name].shape == shapes[name] for name in found.packings)
    expected = QUANTIZATION.get(layout, f"GGUF {layout.removeprefix('gguf-')}")
    assert found.quantization == expected


@pytest.mark.parametrize(
    "layout", [name for name in packed_files.WRITERS if not name.startswith(("gguf", "fp8-blocks"))]
)
def test_a_file_without_its_scales_is_refused(tmp_path: Path, layout: str) -> None:
    file = packed_files.shared(layout)
    bare = packed_files.without(file, packed_files.is_scale, tmp_path / "bare.safetensors")
    found = described(bare)
    if layout == "fp8-scaled-unmarked":
        # Nothing in it says that there ever were scales: it is a cast.
        assert (found.problems, found.quantization) == ((), "fp8 (plain cast)")
        return
    (message,) = found.problems
    assert "refiner.0.attention." in message
    assert "more): download it again, or use a bf16 file" in message
    one = next(iter(sorted(file.weights)))
    part = packed_files.without(
        file, lambda name: packed_files.is_scale(name) and name.startswith(one[:-6]), bare
    )
    (message,) = described(part).problems
    assert f"({one})" in message


def test_a_file_without_its_markers_is_not_guessed_at(tmp_path: Path) -> None:
    file = packed_files.comfy_int8(tmp_path / "x.safetensors")
    bare = packed_files.without(file, lambda name: name.endswith("comfy_quant"), tmp_path / "y.sft")
    assert "its weights are I8 without scales or a marker" in described(bare).problems[0]


def test_one_unmarked_float8_weight_in_a_marked_file_is_refused(tmp_path: Path) -> None:
    file = packed_files.comfy_fp8(tmp_path / "x.safetensors")
    one = next(iter(file.weights)).removesuffix("weight")
    drop = (f"{one}comfy_quant", f"{one}weight_scale")
    bare = packed_files.without(file, lambda name: name in drop, tmp_path / "y.safetensors")
    assert f"no scale ({one}weight)" in described(bare).problems[0]


def test_plain_files_pass_untouched(tmp_path: Path) -> None:
    path = tiny.save(packed_files.plain_weights(), tmp_path / "x.sft", dtype=torch.bfloat16)
    header = read_header(path)
    found = logical_tensors([header])
    assert found == LogicalTensors(header.tensors, {}, "", ())
    assert found.tensors is header.tensors


def test_a_straight_cast_to_float8_is_a_plain_file(tmp_path: Path) -> None:
    plain = packed_files.plain_weights()
    path = tiny.save(plain, tmp_path / "x.sft", dtype=torch.float8_e4m3fn)
    found = described(path)
    assert found.tensors == read_header(path).tensors
    assert (found.packings, found.problems, found.quantization) == ({}, (), "fp8 (plain cast)")


def test_gguf_without_blocks_is_a_plain_file(tmp_path: Path) -> None:
    file = packed_files.gguf_file(tmp_path / "x.gguf", "F16")
    found = described(file.path)
    assert (found.packings, found.problems, found.quantization) == ({}, (), "")
    assert found.tensors.keys() == file.plain.keys()


def test_layers_in_metadata_may_lack_the_prefix_of_the_file(tmp_path: Path) -> None:
    weight, scale = torch.zeros(4, 4, dtype=torch.int8), torch.ones(4, 1)
    tensors = {
        "model.diffusion_model.a.weight": weight,
        "model.diffusion_model.a.weight_scale": scale,
    }
    told = '{"layers": {"a": {"format": "int8_tensorwise"}}}'
    path = tiny.save(tensors, tmp_path / "x.sft", {"_quantization_metadata": told})
    found = described(path)
    assert found.problems == ()
    assert list(found.packings) == list(found.tensors) == ["model.diffusion_model.a.weight"]


def test_scales_may_lie_in_another_shard(tmp_path: Path) -> None:
    weight = torch.zeros(4, 4).to(torch.float8_e4m3fn)
    first = tiny.save({"a.weight": weight, "scaled_fp8": weight[0, :2]}, tmp_path / "1.sft")
    second = tiny.save({"a.scale_weight": torch.tensor(2.0)}, tmp_path / "2.sft")
    found = logical_tensors([read_header(first), read_header(second)])
    assert found.problems == ()
    assert found.packings["a.weight"].parts == {"weight": "a.weight", "scale": "a.scale_weight"}


INT8 = {"a.weight": torch.zeros(4, 16, dtype=torch.int8), "a.weight_scale": torch.ones(4, 1)}
FP8 = torch.zeros(4, 16).to(torch.float8_e4m3fn)
PACKED = torch.zeros(4, 16, dtype=torch.uint8)


def told(layer: str = "a", **config: Any) -> dict[str, str]:
    import json

    return {"_quantization_metadata": json.dumps({"layers": {layer: config}})}


@pytest.mark.parametrize(
    ("tensors", "metadata", "words"),
    [
        ({"a.weight": INT8["a.weight"]}, {}, "its weights are I8 without scales or a marker (a."),
        ({"a.weight": PACKED}, {}, "its weights are U8 without scales or a marker (a.weight)"),
        (INT8, told(format="int4_magic"), "comfy_quant int4_magic), which is not supported"),
        (INT8, told(), "comfy_quant without a format"),
        (INT8, told("b", format="int8_tensorwise"), "markers without a weight"),
        (INT8, told(format="nvfp4"), "its marker says nvfp4, but its weights are I8 (a.weight)"),
        (
            INT8,
            told(format="int8_tensorwise", convrot=True, convrot_groupsize=8),
            "its convrot_groupsize is wrong (a.weight)",
        ),
        (INT8, told(format="int8_tensorwise", convrot=True), "its convrot_groupsize is wrong"),
        (
            {**INT8, "a.weight_scale": torch.ones(3, 1)},
            told(format="int8_tensorwise"),
            "has the wrong shape (3, 1) (a.weight)",
        ),
        (
            {"a.weight": PACKED, "a.weight_scale": FP8, "a.weight_scale_2": torch.tensor(1.0)},
            told(format="nvfp4"),
            "the scale of its nvfp4 weights has the wrong shape (4, 16)",
        ),
        (
            {"a.weight": FP8, "a.scale_weight": PACKED[:1, :1]},
            {},
            "the scale of its scaled fp8 weights is U8",
        ),
        (
            {"a.weight": PACKED, "a.weight.quant_state.bitsandbytes__nf4": PACKED[0]},
            {},
            "quantized (bitsandbytes nf4), which is not supported",
        ),
        ({"a.weight": INT8["a.weight"], "a.SCB": torch.ones(4)}, {}, "bitsandbytes int8"),
        ({"a.qweight": INT8["a.weight"], "a.wscales": torch.ones(4)}, {}, "nunchaku SVDQuant"),
        ({"a.qweight": PACKED.int(), "a.qzeros": PACKED.int()}, {}, "GPTQ or AWQ"),
        ({"a.weight._data": PACKED, "a.weight._scale": torch.ones(1)}, {}, "optimum-quanto"),
        ({"a.weight": PACKED.to(torch.uint32), "a.scales": torch.ones(4, 1)}, {}, "(MLX)"),
        ({"a._weight_qdata": INT8["a.weight"]}, {}, "torchao weights without their description"),
        (
            {"a._weight_qdata": PACKED},
            {"a.weight": '{"_type": "Int4Tensor", "_tensor_data_names": ["qdata"]}'},
            "torchao Int4Tensor), which is not supported",
        ),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    tmp_path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str], words: str
) -> None:
    message = problem(tensors, tmp_path, **metadata)
    assert words in message
    assert ": use a bf16, fp8 or GGUF file" in message or "download it again" in message


def test_markers_are_read_in_milliseconds(tmp_path: Path) -> None:
    plain = {f"layers.{i}.norm.weight": torch.ones(1) for i in range(600)}
    packed = {f"layers.{i}.a.weight": torch.zeros(1, 4, dtype=torch.int8) for i in range(300)}
    scales = {f"{name}_scale": torch.ones(1) for name in packed}
    raw = torch.frombuffer(bytearray(b'{"format": "int8_tensorwise"}'), dtype=torch.uint8)
    marks = {name.replace(".weight", ".comfy_quant"): raw for name in packed}
    header = read_header(tiny.save({**plain, **packed, **scales, **marks}, tmp_path / "x.sft"))
    assert len(header.tensors) == 1500
    took = []
    for _ in range(5):
        start = time.thread_time()
        found = logical_tensors([header])
        took.append(time.thread_time() - start)
    assert (len(found.packings), len(found.tensors)) == (300, 900)
    assert min(took) < 0.02


def test_torch_is_not_needed() -> None:
    code = "import sys, inline_core.loading.packing; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["spiece_model", "tekken_model"])
def test_a_tokenizer_inside_a_file_is_no_weight(tmp_path: Path, name: str) -> None:
    tensors = {"model.embed_tokens.weight": torch.zeros(4, 4), name: torch.zeros(9).byte()}
    found = logical_tensors([read_header(tiny.save(tensors, tmp_path / "x.safetensors"))])
    assert (set(found.tensors), found.problems) == ({"model.embed_tokens.weight"}, ())
