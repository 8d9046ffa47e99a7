"""Decode ggml's quantized blocks: raw bytes (blocks, bytes of a block) -> float32 (blocks, values).

The layouts are the structs of ggml's ggml-common.h (MIT); low parts of numbers come first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor


def _cut(blocks: Tensor, *sizes: int) -> tuple[Tensor, ...]:
    """The fields of a block, given the bytes of all but the last."""
    return torch.split(blocks, [*sizes, blocks.shape[1] - sum(sizes)], 1)


def _half(field: Tensor) -> Tensor:
    """A half-precision number (blocks, 2 bytes) -> (blocks, 1)."""
    return field.contiguous().view(torch.float16).float()


def _bits(packed: Tensor, width: int, run: int) -> Tensor:
    """Unpack `width`-bit numbers (blocks, bytes) -> (blocks, bytes * 8 / width).

    Bytes come in runs of `run`: first the lowest bits of all bytes of a run, then the next bits.
    """
    shifts = torch.arange(0, 8, width, dtype=torch.uint8, device=packed.device)  # (8 / width,)
    runs = packed.reshape(len(packed), -1, 1, run)
    runs = (runs >> shifts[:, None]) & ((1 << width) - 1)  # (blocks, runs, 8 / width, run)
    return runs.flatten(1)


def _flags(packed: Tensor) -> Tensor:
    """Single bits in order, lowest first: (blocks, bytes) -> (blocks, bytes * 8)."""
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)  # (8,)
    flags = (packed[:, :, None] >> shifts) & 1  # (blocks, bytes, 8)
    return flags.flatten(1)


def _spread(steps: Tensor, numbers: Tensor, lows: Tensor | None = None) -> Tensor:
    """Numbers (blocks, 256) times steps minus lows, both (blocks, groups) for equal groups."""
    groups = numbers.reshape(*steps.shape, -1)  # (blocks, groups, 256 / groups)
    values = steps[:, :, None] * groups
    if lows is not None:
        values = values - lows[:, :, None]
    return values.flatten(1)


def _q8_0(blocks: Tensor) -> Tensor:
    scale, values = _cut(blocks, 2)
    return _half(scale) * values.view(torch.int8).float()  # (blocks, 32)


def _q4_0(blocks: Tensor) -> Tensor:
    scale, values = _cut(blocks, 2)
    return _half(scale) * (_bits(values, 4, 16).float() - 8)  # (blocks, 32)


def _q4_1(blocks: Tensor) -> Tensor:
    scale, least, values = _cut(blocks, 2, 2)
    return _half(scale) * _bits(values, 4, 16).float() + _half(least)  # (blocks, 32)


def _q5_0(blocks: Tensor) -> Tensor:
    scale, high, low = _cut(blocks, 2, 4)
    values = _bits(low, 4, 16) | (_flags(high) << 4)  # (blocks, 32)
    return _half(scale) * (values.float() - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    scale, least, high, low = _cut(blocks, 2, 2, 4)
    values = _bits(low, 4, 16) | (_flags(high) << 4)  # (blocks, 32)
    return _half(scale) * values.float() + _half(least)


def _q2_k(blocks: Tensor) -> Tensor:
    scales, values, scale, least = _cut(blocks, 16, 64, 2)
    steps = _half(scale) * (scales & 15).float()  # (blocks, 16)
    lows = _half(least) * (scales >> 4).float()  # (blocks, 16)
    return _spread(steps, _bits(values, 2, 32).float(), lows)


def _q3_k(blocks: Tensor) -> Tensor:
    mask, values, scales, scale = _cut(blocks, 32, 64, 12)
    low, high = _cut(scales, 8)
    packed = _bits(low, 4, 8) | (_bits(high, 2, 4) << 4)  # (blocks, 16)
    steps = _half(scale) * (packed.float() - 32)
    # A set bit of the mask means that 4 is not taken off.
    numbers = _bits(values, 2, 32).float() + _bits(mask, 1, 32).float() * 4 - 4  # (blocks, 256)
    return _spread(steps, numbers)


def _six_bit_scales(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Eight scales and eight offsets of 6 bits in 12 bytes, as float32 (blocks, 8) each.

    Bytes 0-3 and 4-7 hold the first four of each, with the top bits of the last four above them;
    bytes 8-11 the low bits of the last four.
    """
    first, second, rest = _cut(packed, 4, 4)
    scales = torch.cat((first & 63, (rest & 15) | ((first >> 6) << 4)), 1)
    lows = torch.cat((second & 63, (rest >> 4) | ((second >> 6) << 4)), 1)
    return scales.float(), lows.float()


def _q4_k(blocks: Tensor) -> Tensor:
    scale, least, packed, values = _cut(blocks, 2, 2, 12)
    scales, lows = _six_bit_scales(packed)
    return _spread(_half(scale) * scales, _bits(values, 4, 32).float(), _half(least) * lows)


def _q5_k(blocks: Tensor) -> Tensor:
    scale, least, packed, high, low = _cut(blocks, 2, 2, 12, 32)
    scales, lows = _six_bit_scales(packed)
    values = _bits(low, 4, 32) | (_bits(high, 1, 32) << 4)  # (blocks, 256)
    return _spread(_half(scale) * scales, values.float(), _half(least) * lows)


def _q6_k(blocks: Tensor) -> Tensor:
    low, high, scales, scale = _cut(blocks, 128, 64, 16)
    steps = _half(scale) * scales.view(torch.int8).float()  # (blocks, 16)
    values = _bits(low, 4, 64) | (_bits(high, 2, 32) << 4)  # (blocks, 256)
    return _spread(steps, values.float() - 32)


BLOCK_READERS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
