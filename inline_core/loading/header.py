"""Read what a weight file holds without reading its data, and say in words what is wrong with it.

A safetensors file starts with a little-endian 64-bit length and that many bytes of JSON (names,
dtypes, shapes, offsets); source: the safetensors format description.  GGUF files are told by their
first bytes and read by `gguf.py`.  Nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from inline_core.errors import ModelFileInvalid, ModelFileMissing
from inline_core.loading.gguf import LEAST_BYTES, MAGIC, read_gguf

SAFE_SUFFIXES: Final = (".safetensors", ".sft")
GGUF_SUFFIX: Final = ".gguf"
WEIGHT_SUFFIXES: Final = (*SAFE_SUFFIXES, GGUF_SUFFIX, ".ckpt", ".pt", ".pth", ".bin", ".onnx")
MAX_HEADER_BYTES: Final = 100_000_000
# The key of the metadata in which ComfyUI's files say how their layers are packed.
PACKED_LAYERS: Final = "_quantization_metadata"
_FIRST_BYTES: Final = 16 * 1024  # holds the whole header of most adapters
_PICKLES: Final = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
DTYPE_BITS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


class TensorInfo(NamedTuple):
    """One tensor of a file: dtype name, logical shape, and its byte range in the data part.

    The dtype is safetensors' name or, in GGUF files, ggml's (`F32` and `BF16` are the same).
    A named tuple, as thousands of files with hundreds of tensors each are read at start.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def element_count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes in the file."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """The checked header of one safetensors or GGUF file; `digest` is a hash of the header's bytes.

    The bytes of a tensor lie at `data_start + info.start` in the file.
    """

    path: Path
    size_bytes: int
    mtime_ns: int
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    digest: str
    data_start: int = 0


def part_of(header: Header, part: str) -> Header:
    """The same file as if it held nothing but the tensors below the prefix `part`, without it.

    Everything else stays (the digest is that of the whole header).
    """
    start = len(part)
    tensors = {name[start:]: info for name, info in header.tensors.items() if name.startswith(part)}
    metadata = dict(header.metadata)
    packed = metadata.pop(PACKED_LAYERS, None)
    if packed is not None:
        metadata |= _packed_layers(packed, part, tensors)
    return replace(header, tensors=tensors, metadata=metadata)


def _packed_layers(text: str, part: str, tensors: Mapping[str, TensorInfo]) -> dict[str, str]:
    """What the metadata says about the packed layers of a part, by their names within it."""
    try:
        document = json.loads(text)
        layers = {name.removeprefix(part): told for name, told in document["layers"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {PACKED_LAYERS: text}  # for the reader of packed files to refuse
    mine = {name: told for name, told in layers.items() if f"{name}.weight" in tensors}
    return {PACKED_LAYERS: json.dumps({**document, "layers": mine})} if mine else {}


def size_in_words(size_bytes: float) -> str:
    """`12309866400` -> `12.3 GB`, in decimal units as file managers and hubs show them."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{int(size_bytes)} bytes"


def what_is_wrong(name: str, start: bytes, size_bytes: int) -> str | None:
    """Say what a file that begins with `start` really is, or None if its first bytes look right.

    The first bytes win over the suffix.  `name` is only used in the sentence.
    """
    gguf = start.startswith(MAGIC)
    if gguf and size_bytes >= LEAST_BYTES:
        return None
    if not gguf and start[8:9] == b"{" and name.lower().endswith((*SAFE_SUFFIXES, GGUF_SUFFIX)):
        return None
    suffix = Path(name).suffix.lower()
    text = start.lstrip()[:64].lower()
    pickled = start.startswith(b"PK\x03\x04") or start[:2] in _PICKLES
    causes = (
        (size_bytes == 0, "is empty (0 bytes): download it again"),
        (start.startswith(b"version https://git-lfs"), _lfs_pointer(start, size_bytes)),
        (
            text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")),
            "is an HTML page, not weights (a failed download?): download it again",
        ),
        (
            gguf,
            f"is GGUF, cut off: it has {size_bytes} bytes, header needs at least {LEAST_BYTES}",
        ),
        (
            pickled,
            "is a pickle or ZIP checkpoint, which can run code when opened: convert to safetensors",
        ),
        (suffix == ".onnx", "is ONNX, which is not supported here: use a .safetensors file"),
        (
            suffix == GGUF_SUFFIX,
            "has the suffix .gguf, but its first bytes are not GGUF: download it again",
        ),
        (
            suffix not in {"", *SAFE_SUFFIXES},
            f"has the suffix {suffix}, which is not read: convert to safetensors",
        ),
    )
    cause = next((words for applies, words in causes if applies), None)
    return f"{name} {cause}" if cause else None


def _lfs_pointer(start: bytes, size_bytes: int) -> str:
    real = re.search(rb"^size (\d+)", start, re.MULTILINE)
    size = f", real file {size_in_words(int(real.group(1)))}" if real else ""
    return f"is a Git LFS pointer ({size_bytes} bytes{size}): run git lfs pull"


def read_header(path: Path, name: str | None = None) -> Header:
    """Read and check the header of a safetensors or GGUF file, in milliseconds.

    `name` is how the file is called in errors (default: its file name).
    Raises: ModelFileMissing if there is no such file, ModelFileInvalid if it is not a complete file
    of weights; the message says what it is.
    """
    label = name or path.name
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            start = file.read(_FIRST_BYTES)
            problem = what_is_wrong(label, start[:512], status.st_size)
            if problem:
                raise ModelFileInvalid(problem)
            if start.startswith(MAGIC):
                return _gguf(path, file, status, label)
            length = _json_length(label, start, status.st_size)
            raw = (start + file.read(max(length + 8 - len(start), 0)))[8 : length + 8]
    except FileNotFoundError as error:
        message = f"{label} is gone: it was moved or deleted"
        raise ModelFileMissing(message) from error
    except OSError as error:
        message = f"{label} cannot be read: {error.strerror or error}"
        raise ModelFileInvalid(message) from error
    tensors, metadata = _parse(label, raw)
    _check_length(label, tensors, status.st_size - 8 - length)
    digest = hashlib.sha256(raw).hexdigest()[:12]
    return Header(
        path, status.st_size, status.st_mtime_ns, tensors, metadata, digest, data_start=8 + length
    )


def _gguf(path: Path, file: BinaryIO, status: os.stat_result, label: str) -> Header:
    found = read_gguf(file, status.st_size, label)
    tensors = {name: TensorInfo(*entry) for name, entry in found.tensors.items()}
    return Header(
        path,
        status.st_size,
        status.st_mtime_ns,
        tensors,
        found.metadata,
        found.digest,
        found.data_start,
    )


def _json_length(label: str, start: bytes, size_bytes: int) -> int:
    if len(start) < 8:  # noqa: PLR2004 - the length field is 8 bytes
        message = f"{label} is cut off: it has {size_bytes} bytes, header needs at least 8"
        raise ModelFileInvalid(message)
    length = int.from_bytes(start[:8], "little")
    if start[8:9] != b"{" or length > MAX_HEADER_BYTES:
        message = f"{label} is not a safetensors file: its first bytes are no header"
        raise ModelFileInvalid(message)
    if length + 8 > size_bytes:
        message = f"{label} is cut off: it has {size_bytes} bytes, header needs {length + 8}"
        raise ModelFileInvalid(message)
    return length


def _parse(label: str, raw: bytes) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    try:
        document: dict[str, Any] = json.loads(raw)
        metadata = document.pop("__metadata__", None) or {}
        tensors = {
            name: TensorInfo(entry["dtype"], tuple(entry["shape"]), *entry["data_offsets"])
            for name, entry in document.items()
        }
        wrong = next((name for name, info in tensors.items() if not _is_sound(info)), None)
        texts = {str(key): str(value) for key, value in metadata.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{label} has a damaged safetensors header: download it again"
        raise ModelFileInvalid(message) from error
    if wrong is not None:
        message = f"{label} has a damaged safetensors header: the size of {wrong} is wrong"
        raise ModelFileInvalid(message)
    return tensors, texts


def _is_sound(info: TensorInfo) -> bool:
    """Say whether the byte range fits dtype and shape.  Raises: TypeError for non-numbers."""
    dtype, shape, start, end = info
    bits = DTYPE_BITS.get(dtype)
    fits = bits is None or math.prod(shape) * bits == (end - start) * 8
    return fits and 0 <= start <= end


def _check_length(label: str, tensors: Mapping[str, TensorInfo], data_bytes: int) -> None:
    needed = max((tensor.end for tensor in tensors.values()), default=0)
    if needed > data_bytes:
        has, wants = size_in_words(data_bytes), size_in_words(needed)
        message = (
            f"{label} is cut off: it has {data_bytes} bytes of weights, header needs {needed} "
            f"({has} of {wants}): finish or repeat the download"
        )
        raise ModelFileInvalid(message)
