"""Which weights of a model are linears of its repeated blocks: the ones that may be held as int8.

Told from names and shapes alone, so that a plan made from a header and a load agree.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from inline_core.devices.budget import Weights
from inline_core.loading.header import TensorInfo

# `layers.0.attention.to_q.weight`: a numbered block with a module and its weight below it.
_BLOCK: Final = re.compile(r"^((?:[^.]+\.)*?[^.]+\.\d+)\.[^.]+\..+$")
# Tables that are looked up, not multiplied.
_TABLES: Final = re.compile(r"embed|relative_attention|pos_bias", re.IGNORECASE)
_SMALLEST: Final = 4096  # values; below that a scale for each row saves nothing


def block_of(name: str) -> str | None:
    """`layers.0.attention.to_q.weight` -> `layers.0`; None outside of repeated blocks."""
    match = _BLOCK.match(name)
    return match.group(1) if match else None


def is_block_linear(name: str, shape: tuple[int, ...]) -> bool:
    """Say whether a weight belongs to a linear that int8 may hold."""
    return (
        len(shape) == 2  # noqa: PLR2004 - a matrix
        and math.prod(shape) >= _SMALLEST
        and block_of(name) is not None
        and _TABLES.search(name) is None
    )


def weights_of(
    tensors: Mapping[str, TensorInfo], dtype: str, *, packed: bool = False, prefix: str = ""
) -> Weights:
    """Add up what a plan needs to know from the logical tensors of one component.

    `dtype` is the file's main dtype, `prefix` what stands before every name, `packed` says that
    the file is pre-quantized.
    """
    values = linear_values = linear_rows = outside = file_bytes = 0
    blocks: defaultdict[str, int] = defaultdict(int)
    for name, info in tensors.items():
        bare = name.removeprefix(prefix)
        count = info.element_count
        values += count
        file_bytes += info.size_bytes
        block = block_of(bare)
        if block is None:
            outside += count
            continue
        blocks[block] += count
        if is_block_linear(bare, info.shape):
            linear_values += count
            linear_rows += info.shape[0]
    return Weights(
        values=values,
        linear_values=linear_values,
        linear_rows=linear_rows,
        largest_block=max(blocks.values(), default=0),
        outside=outside,
        file_dtype=dtype,
        file_bytes=file_bytes,
        packed_bytes=file_bytes if packed else 0,
    )
