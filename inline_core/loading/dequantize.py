"""Turn packed weights into plain ones, and plain ones into int8.

All arithmetic is float32 and done for some rows at a time, so a weight of a gigabyte needs scratch
of a few dozen megabytes.  Parts are the tensors as they lie in the file; see `packing.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from inline_core.errors import ModelFileInvalid
from inline_core.loading.ggml_blocks import BLOCK_READERS
from inline_core.loading.gguf import BLOCKS
from inline_core.loading.packing import (
    MXFP8_BLOCK,
    NVFP4_BLOCK,
    TILE_COLUMNS,
    TILE_ROWS,
    Packing,
    block_of,
)

INT8_MOST: Final = 127
# Values done at once.  4 MB of float32 fit a processor's cache; an accelerator wants fewer calls.
_CHUNK_VALUES: Final = 1 << 20
_CHUNK_VALUES_ACCELERATOR: Final = 1 << 24
# E2M1: sign, two bits of exponent, one of mantissa (OCP Microscaling Formats 1.0, table 5).
_E2M1: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

Parts = Mapping[str, Tensor]
_Rows = Callable[[int, int], Tensor]


def dequantize(packing: Packing, parts: Parts, dtype: torch.dtype) -> Tensor:
    """The weight in its logical shape and in `dtype`, on the device of the parts."""
    rows = packing.shape[0] if len(packing.shape) > 1 else 1
    columns = math.prod(packing.shape) // max(rows, 1)
    read = _row_reader(packing, parts, rows, columns)
    step = _rows_at_once(columns, parts["weight"].device)
    if rows <= step:
        return read(0, rows).to(dtype).reshape(packing.shape)
    result = torch.empty((rows, columns), dtype=dtype, device=parts["weight"].device)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        result[start:stop] = read(start, stop)  # (step, columns)
    return result.reshape(packing.shape)


def _rows_at_once(columns: int, device: torch.device) -> int:
    values = _CHUNK_VALUES if device.type == "cpu" else _CHUNK_VALUES_ACCELERATOR
    return max(1, values // max(columns, 1))


def quantize_int8(weight: Tensor) -> tuple[Packing, dict[str, Tensor]]:
    """Quantize a weight (out, in) symmetrically, with one scale for each output row.

    The largest value of a row becomes 127.  Temporaries are for a few rows at a time, so the peak
    is the int8 result and about 16 MB (250 MB on an accelerator).
    Raises: ModelFileInvalid if the weight has values that are not finite.
    """
    weight = weight.detach()
    rows, columns = weight.shape
    packed = torch.empty((rows, columns), dtype=torch.int8, device=weight.device)
    scale = torch.empty((rows, 1), dtype=torch.float32, device=weight.device)  # (out, 1)
    step = _rows_at_once(columns, weight.device)
    for start in range(0, rows, step):
        part = weight[start : start + step].float()  # (step, in)
        most = part.abs().amax(1, keepdim=True)  # (step, 1)
        scale[start : start + step] = most / INT8_MOST
        divisor = torch.where(most > 0, most / INT8_MOST, torch.ones_like(most))
        packed[start : start + step] = (part / divisor).round_().clamp_(-INT8_MOST, INT8_MOST)
    if not bool(torch.isfinite(scale).all()):
        message = "a weight has values that are not finite: download the file again"
        raise ModelFileInvalid(message)
    names = {"weight": "weight", "scale": "scale"}
    return Packing("int8", names, (rows, columns)), {"weight": packed, "scale": scale}


def split_rows(
    packing: Packing, parts: Parts, part: int, count: int, span: int = 1
) -> tuple[Packing, dict[str, Tensor]] | None:
    """`span` blocks from `part` on, of `count` equal row blocks of a packed, fused projection.

    None if the rows cannot be split in this layout: then dequantize the whole and split that.
    Nothing is unpacked, so the block has exactly the values of the whole.  On the processor the
    rows are views, which cost nothing where the file is mapped; elsewhere they are copies, as a
    view would keep the other rows in memory.
    """
    rows = packing.shape[0]
    if len(packing.shape) < 2 or rows % count:  # noqa: PLR2004 - a vector has no rows
        return None
    size = rows // count * span
    start = part * (rows // count)
    new = replace(packing, shape=(size, *packing.shape[1:]))
    if packing.format == "gguf":
        flat = parts["weight"].reshape(rows, -1)  # (out, bytes)
        return new, {"weight": _rows_of(flat, start, size).reshape(-1)}
    if parts["weight"].shape[0] != rows:
        return None
    made = {"weight": _rows_of(parts["weight"], start, size)}
    for name, side in parts.items():
        if name == "weight":
            continue
        piece = _split_side(packing, name, side, start, size)
        if piece is None:
            return None
        made[name] = piece
    return new, made


def _rows_of(tensor: Tensor, start: int, size: int) -> Tensor:
    rows = tensor.narrow(0, start, size)
    return rows if rows.device.type == "cpu" else rows.clone()


def _split_side(packing: Packing, name: str, side: Tensor, start: int, size: int) -> Tensor | None:
    """The scales of some rows; None if one scale spans the border."""
    rows = packing.shape[0]
    if side.numel() == 1:
        return side
    if packing.format in ("nvfp4", "mxfp8") and name == "scale":
        block = NVFP4_BLOCK if packing.format == "nvfp4" else MXFP8_BLOCK
        plain = _untile(side.view(torch.uint8), rows, packing.shape[1] // block)
        return _tile(plain.narrow(0, start, size)).view(side.dtype)
    square = packing.group_size if packing.format == "fp8" else 0
    group = block_of(rows, side.shape[0], square)
    if start % group or size % group:
        return None
    return _rows_of(side, start // group, size // group)


@functools.lru_cache(maxsize=8)
def hadamard(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The regular Hadamard matrix of ConvRot, (size, size), symmetric and its own inverse.

    Kronecker powers of a 4x4 matrix with equal row sums; `size` is a power of 4, so the entries,
    +-1 / sqrt(size), are exact in every float type.
    """
    # Kept between calls, so it must also serve where gradients are taken.
    with torch.inference_mode(mode=False):
        four = torch.tensor([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]]).float()
        matrix = torch.ones(1, 1)
        while matrix.shape[0] < size:
            matrix = torch.kron(matrix, four)
        return (matrix / math.sqrt(size)).to(device=device, dtype=dtype)


def rotate(values: Tensor, group_size: int) -> Tensor:
    """Rotate each group of `group_size` columns of (..., in); twice gives the values back."""
    groups = values.reshape(*values.shape[:-1], -1, group_size)  # (..., groups, group size)
    turned: Tensor = groups @ hadamard(group_size, values.dtype, values.device)
    return turned.flatten(-2)


def _row_reader(packing: Packing, parts: Parts, rows: int, columns: int) -> _Rows:
    """A function that gives the rows from start to stop as float32 (stop - start, columns)."""
    if packing.format == "gguf":
        return _gguf_rows(packing, parts, rows, columns)
    if packing.format == "nvfp4":
        return _nvfp4_rows(parts, rows, columns)
    if packing.format == "mxfp8":
        return _mxfp8_rows(parts, rows, columns)
    return _scaled_rows(packing, parts, rows, columns)


def _scaled_rows(packing: Packing, parts: Parts, rows: int, columns: int) -> _Rows:
    """One scale for all, for each row, or for each rectangle of a grid."""
    weight = parts["weight"].reshape(rows, columns)
    square = packing.group_size if packing.format == "fp8" else 0
    sides = {
        name: _grid(part.float(), rows, columns, square)
        for name, part in parts.items()
        if name != "weight"
    }

    def read(start: int, stop: int) -> Tensor:
        values = weight[start:stop].float()  # (rows, columns)
        if "zero_point" in sides:
            values = values - sides["zero_point"](start, stop)
        values = values * sides["scale"](start, stop)
        if packing.format == "int8_convrot":
            values = rotate(values, packing.group_size)
        return values

    return read


def _grid(side: Tensor, rows: int, columns: int, square: int) -> _Rows:
    """Spread scales over the rows from start to stop: something that broadcasts with them."""
    if side.numel() == 1:
        return lambda _start, _stop: side.reshape(1, 1)
    if side.numel() == rows and side.shape[0] == rows:
        return lambda start, stop: side.reshape(rows, 1)[start:stop]
    tall = block_of(rows, side.shape[0], square)
    wide = block_of(columns, side.shape[1], square)

    def read(start: int, stop: int) -> Tensor:
        index = torch.arange(start, stop, device=side.device) // tall  # (rows,)
        return side[index].repeat_interleave(wide, 1)[:, :columns]  # (rows, columns)

    return read


def _nvfp4_rows(parts: Parts, rows: int, columns: int) -> _Rows:
    """Two E2M1 numbers a byte, high half first; an E4M3 scale for 16, a float scale for all."""
    weight = parts["weight"].reshape(-1, columns // 2)[:rows]  # (rows, columns / 2)
    groups = columns // NVFP4_BLOCK
    scale = _untile(parts["scale"].view(torch.uint8), rows, groups).view(torch.float8_e4m3fn)
    scale = scale.float() * parts["scale_2"].float().reshape(1, 1)  # (rows, groups)
    table = torch.tensor((*_E2M1, *(-value for value in _E2M1)), device=weight.device)  # (16,)

    def read(start: int, stop: int) -> Tensor:
        packed = weight[start:stop]
        halves = torch.stack((packed >> 4, packed & 15), -1).flatten(1)  # (rows, columns)
        values = table[halves.int()].reshape(-1, groups, NVFP4_BLOCK)
        values = values * scale[start:stop, :, None]
        return values.flatten(1)

    return read


def _mxfp8_rows(parts: Parts, rows: int, columns: int) -> _Rows:
    """Float8 with one power of two, E8M0 (bias 127), for 32 of them."""
    weight = parts["weight"].reshape(-1, columns)[:rows]
    groups = columns // MXFP8_BLOCK
    exponent = _untile(parts["scale"].view(torch.uint8), rows, groups)  # (rows, groups)
    scale = (exponent.int() << 23).view(torch.float32)  # E8M0 is the exponent of a float32

    def read(start: int, stop: int) -> Tensor:
        values = weight[start:stop].float().reshape(-1, groups, MXFP8_BLOCK)
        values = values * scale[start:stop, :, None]
        return values.flatten(1)

    return read


def _gguf_rows(packing: Packing, parts: Parts, rows: int, columns: int) -> _Rows:
    """Rows of blocks; a type that has no block of its own would have been refused."""
    block = BLOCKS[packing.block]
    decode = BLOCK_READERS[packing.block]
    raw = parts["weight"].view(torch.uint8).reshape(rows, -1)  # (rows, bytes)

    def read(start: int, stop: int) -> Tensor:
        blocks = raw[start:stop].reshape(-1, block.size_bytes)  # (blocks, bytes)
        return decode(blocks).reshape(stop - start, columns)

    return read


def _untile(scales: Tensor, rows: int, columns: int) -> Tensor:
    """Scales in cuBLAS's order -> (rows, columns).

    A tile of 128 x 4 scales is stored as 32 x 4 x 4: row r of a tile lies at r % 32, r // 32.
    Source: "1D block scaling factors layout" in NVIDIA's cuBLAS documentation.
    """
    tall, wide = -(-rows // TILE_ROWS), -(-columns // TILE_COLUMNS)
    tiles = scales.reshape(tall, wide, 32, 4, TILE_COLUMNS).permute(0, 3, 2, 1, 4)
    return tiles.reshape(tall * TILE_ROWS, wide * TILE_COLUMNS)[:rows, :columns]


def _tile(scales: Tensor) -> Tensor:
    """The inverse of `_untile`, padded with zeros: (padded rows, padded columns)."""
    rows, columns = scales.shape
    tall, wide = -(-rows // TILE_ROWS), -(-columns // TILE_COLUMNS)
    padded = scales.new_zeros((tall * TILE_ROWS, wide * TILE_COLUMNS))
    padded[:rows, :columns] = scales
    tiles = padded.reshape(tall, 4, 32, wide, TILE_COLUMNS).permute(0, 3, 2, 1, 4)
    return tiles.reshape(padded.shape)
