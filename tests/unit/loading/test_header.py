from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
import torch

from inline_core.errors import ModelFileInvalid, ModelFileMissing
from inline_core.loading.header import read_header
from tests import tiny

if TYPE_CHECKING:
    from pathlib import Path

LFS = f"version https://git-lfs.github.com/spec/v1\noid sha256:{0:064d}\nsize 12309866400\n"


def weights(folder: Path, name: str = "tiny.safetensors") -> Path:
    return tiny.save({"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4)}, folder / name)


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileInvalid) as caught:
        read_header(path)
    return caught.value.message


def test_reads_names_shapes_dtypes_and_metadata(tmp_path: Path) -> None:
    path = tiny.save({"a": torch.ones(2, 3).bfloat16()}, tmp_path / "x.sft", {"note": "hi"})
    header = read_header(path)
    assert header.tensors["a"].shape == (2, 3)
    assert header.tensors["a"].dtype == "BF16"
    assert header.tensors["a"].size_bytes == 12
    assert header.metadata["note"] == "hi"
    assert header.size_bytes == path.stat().st_size
    info = header.tensors["a"]
    start = header.data_start
    raw = path.read_bytes()[start + info.start : start + info.end]
    assert raw == b"\x80\x3f" * 6


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (LFS.encode(), "is a Git LFS pointer (136 bytes, real file 12.3 GB): run git lfs pull"),
        (b"<!doctype html><title>401</title>", "is an HTML page"),
        (b"GGUF\x03\x00\x00\x00", "is GGUF, cut off: it has 8 bytes, header needs at least 24"),
        (b"GGUF\x03\x00\x00\x00" + b"\0" * 64, "is GGUF, damaged (it has no weights)"),
        (b"", "is empty (0 bytes)"),
        (b"\x10\0\0\0\0\0\0", "it has 7 bytes"),
        (b"PK\x03\x04" + b"\0" * 64, "convert to safetensors"),
        (b"\x80\x02" + b"\0" * 64, "convert to safetensors"),
        (b"\xff" * 64, "is not a safetensors file"),
        (b"\x05\0\0\0\0\0\0\0{nope", "damaged safetensors header"),
    ],
)
def test_says_what_a_file_really_is(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "tiny.safetensors"
    path.write_bytes(content)
    message = refusal(path)
    assert message.startswith("tiny.safetensors ")
    assert words in message


@pytest.mark.parametrize("suffix", [".ckpt", ".pt", ".pth", ".bin"])
def test_pickle_suffixes_are_refused_with_the_remedy(tmp_path: Path, suffix: str) -> None:
    path = weights(tmp_path, "x" + suffix)
    assert "convert to safetensors" in refusal(path)


def test_a_cut_off_file_says_how_much_is_there(tmp_path: Path) -> None:
    path = weights(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    assert "cut off: it has 30 bytes of weights, header needs 40" in refusal(path)
    path.write_bytes(whole[:40])
    assert "cut off: it has 40 bytes, header needs" in refusal(path)


def test_wrong_sizes_in_the_header_are_found(tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}
    raw = json.dumps({"a": entry}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + b"\0" * 8)
    assert "the size of a is wrong" in refusal(path)


def test_a_file_that_went_away(tmp_path: Path) -> None:
    with pytest.raises(ModelFileMissing, match="is gone"):
        read_header(tmp_path / "x.safetensors")


def test_takes_milliseconds(tmp_path: Path) -> None:
    tensors = {f"layers.{i}.weight": torch.zeros(1) for i in range(1000)}
    path = tiny.save(tensors, tmp_path / "x.safetensors")
    start = time.perf_counter()
    for _ in range(10):
        read_header(path)
    assert (time.perf_counter() - start) / 10 < 0.05
