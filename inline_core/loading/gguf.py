"""Read the header of a GGUF file: names, types, shapes and byte ranges, without reading weights.

Layout, all little-endian: ``GGUF``, version u32, number of tensors u64, number of values u64, the
values (key, type u32, value), the tensors (name, number of dimensions u32, dimensions u64 with the
innermost first, type u32, offset u64), padding to the alignment, data.  Source: the GGUF
specification in ggml (docs/gguf.md).  Nothing here needs torch or the gguf package, whose reader
maps the file and builds arrays of everything.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple

from inline_core.errors import ModelFileInvalid

MAGIC: Final = b"GGUF"
LEAST_BYTES: Final = 24  # magic, version and the two counts
MAX_HEADER_BYTES: Final = 100_000_000
_VERSIONS: Final = (2, 3)
_FIRST_BYTES: Final = 64 * 1024
_MAX_DIMENSIONS: Final = 8
_LEAST_ENTRY: Final = 13  # a value with an empty key and one byte; tensors need more
_SHORT_ARRAY: Final = 16  # longer ones are vocabularies
_ALIGNMENT: Final = 32
# ComfyUI-GGUF keeps the shape of tensors that it had to reshape for their blocks.
_ORIGINAL_SHAPE: Final = "comfy.gguf.orig_shape."

_UNSIGNED_32: Final = "<I"
_UNSIGNED_64: Final = "<Q"
# Value types by number; 8 is a string, 9 an array.
_NUMBERS: Final[Mapping[int, str]] = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING: Final = 8
_ARRAY: Final = 9


class BlockType(NamedTuple):
    """A ggml type: `values` of a row make one block of `size_bytes`."""

    name: str
    values: int
    size_bytes: int


BLOCK_TYPES: Final[Mapping[int, BlockType]] = {
    number: BlockType(name, values, size_bytes)
    for number, name, values, size_bytes in (
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (9, "Q8_1", 32, 40),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
    )
}
BLOCKS: Final[Mapping[str, BlockType]] = {block.name: block for block in BLOCK_TYPES.values()}


class GgufTensor(NamedTuple):
    """One tensor: ggml type name, shape with the outermost dimension first, range in the data."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class GgufHeader:
    """What a GGUF file says of itself; `data_start` is the byte where the ranges count from.

    `metadata` holds strings and numbers as text and short arrays joined by commas; long arrays
    (vocabularies) are left out.
    """

    tensors: Mapping[str, GgufTensor]
    metadata: Mapping[str, str]
    data_start: int
    digest: str


def read_gguf(file: BinaryIO, size_bytes: int, label: str) -> GgufHeader:
    """Read and check the header of an open GGUF file of `size_bytes`, in milliseconds.

    Raises: ModelFileInvalid, which says what is wrong with `label`; OSError.
    """
    cursor = _Cursor(file, size_bytes, label)
    cursor.take(len(MAGIC))
    version = cursor.number(_UNSIGNED_32)
    if version not in _VERSIONS:
        words = "big-endian" if version >> 24 else f"version {version}"
        message = f"{label} is GGUF, {words}, which is not read: convert it to version 3"
        raise ModelFileInvalid(message)
    tensor_count = cursor.number(_UNSIGNED_64)
    value_count = cursor.number(_UNSIGNED_64)
    cursor.expect(_LEAST_ENTRY * (tensor_count + value_count))
    metadata: dict[str, str] = {}
    for _ in range(value_count):
        key = cursor.string()
        value = _value(cursor, cursor.number(_UNSIGNED_32))
        if value is not None:
            metadata[key] = value
    if not tensor_count:
        raise cursor.damaged("it has no weights")
    entries = [_entry(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", "")
    step = int(alignment) if alignment.isdigit() and int(alignment) else _ALIGNMENT
    data_start = -(-cursor.position // step) * step
    digest = cursor.digest()
    tensors = _checked(entries, metadata, cursor, data_start)
    return GgufHeader(tensors, metadata, data_start, digest)


class _Cursor:
    """Reads on in a file, never past its end and never more than a header may have."""

    def __init__(self, file: BinaryIO, size_bytes: int, label: str) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self._label = label
        self._buffer = bytearray()
        self.position = 0
        file.seek(0)

    def damaged(self, reason: str) -> ModelFileInvalid:
        """The error for a header that makes no sense."""
        return ModelFileInvalid(f"{self._label} is GGUF, damaged ({reason}): download it again")

    def cut_off(self, needed: int) -> ModelFileInvalid:
        """The error for a file that ends too early."""
        return ModelFileInvalid(
            f"{self._label} is GGUF, cut off: it has {self._size_bytes} bytes, header needs "
            f"{needed}: finish or repeat the download"
        )

    def expect(self, count: int) -> None:
        """Raise if the file cannot hold `count` more bytes."""
        if self.position + count > self._size_bytes:
            raise self.cut_off(self.position + count)

    def _fetch(self, end: int) -> None:
        if end > self._size_bytes:
            raise self.cut_off(end)
        if end > MAX_HEADER_BYTES:
            raise self.damaged("its header has no end")
        missing = max(end - len(self._buffer), len(self._buffer), _FIRST_BYTES)
        self._buffer += self._file.read(missing)
        if end > len(self._buffer):
            raise self.cut_off(end)

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        start, self.position = self.position, self.position + count
        if self.position > len(self._buffer):
            self._fetch(self.position)
        return bytes(self._buffer[start : self.position])

    def number(self, form: str) -> int:
        """The next number; `form` is a struct format."""
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def string(self) -> str:
        """The next text, which lies after its length."""
        return self.take(self.number(_UNSIGNED_64)).decode("utf-8", "replace")

    def skip_strings(self, count: int) -> None:
        """Go past `count` texts; a vocabulary has 150000 of them."""
        self.expect(8 * count)
        unpack = struct.Struct(_UNSIGNED_64).unpack_from
        buffer, position = self._buffer, self.position
        for _ in range(count):
            if position + 8 > len(buffer):
                self._fetch(position + 8)
            position += 8 + unpack(buffer, position)[0]
        self.position = position
        self.take(0)

    def digest(self) -> str:
        """A hash of the header's bytes."""
        return hashlib.sha256(self._buffer[: self.position]).hexdigest()[:12]


def _value(cursor: _Cursor, kind: int) -> str | None:
    """A value as text; None for an array that is too long to be of interest."""
    if kind == _STRING:
        return cursor.string()
    if kind in _NUMBERS:
        return str(cursor.number(_NUMBERS[kind]))
    if kind != _ARRAY:
        raise cursor.damaged(f"a value of type {kind}")
    item_kind = cursor.number(_UNSIGNED_32)
    count = cursor.number(_UNSIGNED_64)
    if item_kind != _STRING and item_kind not in _NUMBERS:
        raise cursor.damaged(f"an array of type {item_kind}")
    if count <= _SHORT_ARRAY:
        return ",".join(str(_value(cursor, item_kind)) for _ in range(count))
    if item_kind == _STRING:
        cursor.skip_strings(count)
    else:
        cursor.position += count * struct.calcsize(_NUMBERS[item_kind])
        cursor.take(0)
    return None


def _entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """(name, shape, type, offset) of the next tensor."""
    name = cursor.string()
    count = cursor.number(_UNSIGNED_32)
    if count > _MAX_DIMENSIONS:
        raise cursor.damaged(f"a tensor of {count} dimensions")
    shape = struct.unpack(f"<{count}Q", cursor.take(8 * count))[::-1]
    return name, shape, cursor.number(_UNSIGNED_32), cursor.number(_UNSIGNED_64)


def _checked(
    entries: list[tuple[str, tuple[int, ...], int, int]],
    metadata: Mapping[str, str],
    cursor: _Cursor,
    data_start: int,
) -> dict[str, GgufTensor]:
    tensors: dict[str, GgufTensor] = {}
    for name, shape, number, start in entries:
        # A type of tomorrow has no known size; it is refused later, by name.
        block = BLOCK_TYPES.get(number, BlockType(f"ggml type {number}", 1, 0))
        row = shape[-1] if shape else 1
        if name in tensors or row % block.values:
            raise cursor.damaged(f"the size of {name} is wrong")
        end = start + math.prod(shape) // block.values * block.size_bytes
        original = metadata.get(_ORIGINAL_SHAPE + name, "").split(",")
        if all(part.isdigit() for part in original):
            kept = tuple(int(part) for part in original)
            shape = kept if math.prod(kept) == math.prod(shape) else shape  # noqa: PLW2901
        tensors[name] = GgufTensor(block.name, shape, start, end)
    cursor.position = data_start
    cursor.expect(max(tensor.end for tensor in tensors.values()))
    return tensors
