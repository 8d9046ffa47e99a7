from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inline_core.errors import ModelFileInvalid
from inline_core.loading.gguf import BLOCK_TYPES
from inline_core.loading.gguf_names import plain_name
from inline_core.loading.header import Header, read_header
from inline_core.loading.packing import logical_tensors
from tests import packed_files, tiny

if TYPE_CHECKING:
    from pathlib import Path


def small(path: Path, **values: Any) -> Path:
    """A GGUF file with one vector of four zeros."""
    writer = gguf.GGUFWriter(path, "test")
    for key, value in values.items():
        add: dict[type, Any] = {
            str: writer.add_string,
            int: writer.add_uint32,
            list: writer.add_array,
        }
        add[type(value)](key, value)
    writer.add_tensor("a.weight", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def refusal(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(ModelFileInvalid) as caught:
        read_header(path)
    return caught.value.message


def test_the_table_of_types_is_ggmls() -> None:
    theirs = {
        int(kind): (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType
    }
    assert {number: tuple(block) for number, block in BLOCK_TYPES.items()} == theirs


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K", "F16"])
def test_reads_what_the_gguf_package_reads(kind: str) -> None:
    layout = f"gguf-{kind}"
    file = packed_files.shared(layout if kind != "F16" else "gguf-Q4_0")
    header = read_header(file.path)
    reader = gguf.GGUFReader(file.path)
    assert header.data_start == reader.data_offset
    assert header.metadata["general.architecture"] == "lumina2"
    assert len(header.tensors) == len(reader.tensors)
    for tensor in reader.tensors:
        info = header.tensors[tensor.name]
        assert info.dtype == tensor.tensor_type.name
        assert info.shape == tuple(int(size) for size in reversed(tensor.shape))
        assert header.data_start + info.start == tensor.data_offset
        assert info.size_bytes == tensor.n_bytes
        assert info.shape == tuple(file.plain[tensor.name].shape)


def test_values_are_kept_as_text_and_vocabularies_are_not_kept(tmp_path: Path) -> None:
    path = small(
        tmp_path / "x.gguf",
        **{
            "general.name": "a name",
            "x.count": 7,
            "x.few": [1, 2, 3],
            "x.words": ["a", "b"],
            "x.many": list(range(100)),
            "tokenizer.tokens": [f"token {i}" for i in range(1000)],
            "x.last": "end",
        },
    )
    metadata = dict(read_header(path).metadata)
    assert metadata.pop("general.architecture") == "test"
    assert metadata == {
        "general.name": "a name",
        "x.count": "7",
        "x.few": "1,2,3",
        "x.words": "a,b",
        "x.last": "end",
    }


def test_first_bytes_win_over_the_suffix(tmp_path: Path) -> None:
    path = small(tmp_path / "x.safetensors")
    assert read_header(path).tensors["a.weight"].shape == (4,)
    assert read_header(path.rename(tmp_path / "x.bin")).tensors["a.weight"].dtype == "F32"


def test_the_digest_is_of_the_header(tmp_path: Path) -> None:
    one = read_header(small(tmp_path / "1.gguf"))
    assert one.digest == read_header(small(tmp_path / "2.gguf")).digest
    assert one.digest != read_header(small(tmp_path / "3.gguf", x="y")).digest


def test_reshaped_tensors_have_the_shape_they_came_from(tmp_path: Path) -> None:
    path = small(tmp_path / "x.gguf", **{"comfy.gguf.orig_shape.a.weight": [2, 2]})
    assert read_header(path).tensors["a.weight"].shape == (2, 2)
    path = small(tmp_path / "y.gguf", **{"comfy.gguf.orig_shape.a.weight": [2, 3]})
    assert read_header(path).tensors["a.weight"].shape == (4,)


def test_other_alignments(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(path, "test")
    writer.add_custom_alignment(256)
    writer.add_tensor("a", np.arange(4, dtype=np.float32))
    writer.add_tensor("b", np.arange(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_header(path)
    assert header.data_start % 256 == 0
    start = header.data_start + header.tensors["b"].start
    assert path.read_bytes()[start : start + 16] == np.arange(4, dtype=np.float32).tobytes()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GGUF\x03\0\0\0", "is GGUF, cut off: it has 8 bytes"),
        (b"GGUF\x03\0\0\0" + b"\0" * 16, "is GGUF, damaged (it has no weights)"),
        (b"GGUF\x01\0\0\0" + b"\0" * 16, "is GGUF, version 1, which is not read"),
        (b"GGUF\0\0\0\x03" + b"\0" * 16, "is GGUF, big-endian, which is not read"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 16, "is GGUF, cut off"),
        (
            # One tensor and one value, whose key is empty.
            struct.pack("<4sIQQQI", b"GGUF", 3, 1, 1, 0, 99) + bytes(16),
            "a value of type 99",
        ),
    ],
)
def test_says_what_is_wrong(tmp_path: Path, content: bytes, words: str) -> None:
    message = refusal(tmp_path / "x.gguf", content)
    assert message.startswith("x.gguf ")
    assert words in message


def test_safetensors_named_gguf_is_read_and_other_things_are_not(tmp_path: Path) -> None:
    file = packed_files.shared("fp8-scaled")
    path = tmp_path / "x.gguf"
    path.write_bytes(file.path.read_bytes())
    assert read_header(path).tensors == read_header(file.path).tensors
    message = refusal(path, b"12345678abcdefgh")
    assert (
        message
        == "x.gguf has the suffix .gguf, but its first bytes are not GGUF: download it again"
    )


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_no_part_of_a_file_passes_for_a_whole(share: float) -> None:
    file = packed_files.shared("gguf-Q8_0").path
    content = file.read_bytes()
    cut = file.with_name("cut.gguf")
    cut.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ModelFileInvalid):
        read_header(cut)


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 6000), value=st.integers(0, 255), length=st.integers(1, 8))
def test_damage_is_told_or_harmless(place: int, value: int, length: int) -> None:
    file = packed_files.shared("gguf-Q8_0").path
    content = bytearray(file.read_bytes())
    content[place : place + length] = bytes([value]) * length
    damaged = file.with_name("damaged.gguf")
    damaged.write_bytes(content)
    try:
        header = read_header(damaged)
    except ModelFileInvalid as error:
        assert error.message.startswith("damaged.gguf ")
    else:
        logical_tensors([header])
        assert _inside(header)


def _inside(header: Header) -> bool:
    ends = [header.data_start + info.end for info in header.tensors.values()]
    return max(ends) <= header.size_bytes


def test_types_that_are_not_read_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(path, "test")
    blocks = np.zeros((2, 18), np.uint8)
    writer.add_tensor("a.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.IQ4_NL)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    message = "its weights are GGUF IQ4_NL, which is not supported (a.weight): use a file with Q8_0"
    assert logical_tensors([read_header(path)]).problems[0].startswith(message)
    content = path.read_bytes()
    tomorrow = content.replace(b"\x14\0\0\0" + b"\0" * 8, b"\x63\0\0\0" + b"\0" * 8)
    assert tomorrow != content
    path.write_bytes(tomorrow)
    assert "GGUF ggml type 99, which" in logical_tensors([read_header(path)]).problems[0]


@pytest.mark.parametrize("kind", ["Q8_0", "F16"])
def test_language_models_have_the_names_of_transformers(tmp_path: Path, kind: str) -> None:
    theirs = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, 3)
    quantization = gguf.GGMLQuantizationType[kind]
    state = {f"model.{name}": value for name, value in tiny.text_encoder().state_dict().items()}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "qwen3")
    for name, value in state.items():
        stored = theirs.get_name(name, (".weight",))
        assert stored is not None
        if value.ndim == 2:
            packed = gguf.quants.quantize(value.numpy(), quantization)
            writer.add_tensor(stored, packed, raw_dtype=quantization)
        else:
            writer.add_tensor(stored, value.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = logical_tensors([read_header(tmp_path / "x.gguf")])
    assert found.problems == ()
    shapes = {name: info.shape for name, info in found.tensors.items()}
    assert shapes == {name: tuple(value.shape) for name, value in state.items()}
    matrices = {name for name, value in state.items() if value.ndim == 2}
    assert found.packings.keys() == (matrices if kind == "Q8_0" else set())
    for name, packing in found.packings.items():
        assert packing.parts == {"weight": theirs.get_name(name, (".weight",))}


@pytest.mark.parametrize("name", ["blk.0.unknown.weight", "rope_freqs.weight", "a.b.c", "x"])
def test_other_names_stay(name: str) -> None:
    assert plain_name(name) == name


def test_a_part_of_a_split_file_is_refused(tmp_path: Path) -> None:
    path = small(tmp_path / "x-00001-of-00003.gguf", **{"split.count": 3})
    assert logical_tensors([read_header(path)]).problems == (
        "it is one of 3 parts of a split GGUF: merge them with llama-gguf-split",
    )


def test_a_large_vocabulary_takes_milliseconds(tmp_path: Path) -> None:
    words = [f"word {i}" for i in range(50_000)]
    path = small(tmp_path / "x.gguf", **{"tokenizer.ggml.tokens": words})
    start = time.thread_time()
    read_header(path)
    assert time.thread_time() - start < 0.2
