"""Attention in windows of a video, exact and in bounded memory on any device.

Diffusers has it as a FlexAttention whose mask is larger than any memory at real sizes, and as a
kernel that is fetched from the hub.  Both are matched here: every query attends to a window of
`kernel_size` around it, which is shifted inward at the borders so that it is always whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from torch import Tensor

# Queries that share their keys, along (frames, rows, columns).  Larger tiles see more keys in vain.
TILE: Final = (4, 8, 8)
_WITHIN: Final = -1  # a length for tiles that no border is near


class WindowedAttention:
    """A processor for LTX2VideoVaeNeighborhoodAttention; stateless."""

    def __call__(self, attn: Any, hidden_states: Tensor, block_mask: object = None) -> Tensor:
        """(rows, t, h, w, channels) -> the same; `block_mask` is for another processor."""
        del block_mask
        query, key, value = attn.project_qkv(hidden_states)  # 3 x (rows, t, h, w, heads, dim)
        made = windowed(query, key, value, attn.kernel_size)  # (rows, t, h, w, heads, dim)
        output: Tensor = attn.to_out[0](made.flatten(4))  # (rows, t, h, w, channels)
        return output


def windowed(query: Tensor, key: Tensor, value: Tensor, window: tuple[int, ...]) -> Tensor:
    """Attention of scaled queries (rows, t, h, w, heads, dim) in windows, tile by tile."""
    made = torch.empty_like(query)  # (rows, t, h, w, heads, dim)
    axes = [
        list(_tiles(length, size, tile))
        for length, size, tile in zip(query.shape[1:4], window, TILE, strict=True)
    ]
    masks = [{tile: _mask(*tile, query.device) for tile in {t[2] for t in axis}} for axis in axes]
    for frames, rows, columns in itertools.product(*axes):
        chosen = (slice(None), frames[0], rows[0], columns[0])
        keys = (slice(None), frames[1], rows[1], columns[1])
        parts = [kind[tile[2]] for kind, tile in zip(masks, (frames, rows, columns), strict=True)]
        mask = _all_of(*parts)  # (queries, keys)
        found = scaled_dot_product_attention(
            _flat(query[chosen]), _flat(key[keys]), _flat(value[keys]), attn_mask=mask, scale=1.0
        )  # (rows, heads, queries, dim)
        made[chosen] = found.transpose(1, 2).reshape(made[chosen].shape)
    return made


# Where a tile starts among its keys, how many queries and keys it has, and how wide a window is.
Shape = tuple[int, int, int, int, int]


def _tiles(length: int, window: int, tile: int) -> Iterator[tuple[slice, slice, Shape]]:
    """The queries and keys of each tile along an axis, and what its mask depends on."""
    window = min(window, length)
    for start in range(0, length, tile):
        end = min(start + tile, length)
        low = _start(start, window, length)
        high = _start(end - 1, window, length) + window
        # Tiles within a video are alike; those at a border tell how far it is from their windows.
        inner = low == start - window // 2 and high == end - 1 - window // 2 + window
        at = (0, _WITHIN) if inner else (start, length)
        shape = (at[0], end - start, high - low, window, at[1])
        yield slice(start, end), slice(low, high), shape


def _start(place: int, window: int, length: int) -> int:
    """Where the window of a query starts."""
    return min(max(place - window // 2, 0), length - window)


def _mask(
    start: int, queries: int, keys: int, window: int, length: int, device: torch.device
) -> Tensor:
    """Which keys are in the window of each query along an axis: (queries, keys) of booleans."""
    if length == _WITHIN:
        starts = list(range(queries))
    else:
        low = _start(start, window, length)
        starts = [_start(start + index, window, length) - low for index in range(queries)]
    first = torch.tensor(starts, device=device)[:, None]  # (queries, 1)
    places = torch.arange(keys, device=device)[None]  # (1, keys)
    return (places >= first) & (places < first + window)  # (queries, keys)


def _all_of(frames: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The mask of a box from those of its axes: (queries, keys) of booleans."""
    box = (
        frames[:, None, None, :, None, None]
        & rows[None, :, None, None, :, None]
        & columns[None, None, :, None, None, :]
    )  # (t, h, w, key t, key h, key w)
    return box.flatten(3).flatten(0, 2)


def _flat(states: Tensor) -> Tensor:
    """(rows, t, h, w, heads, dim) -> (rows, heads, t * h * w, dim)."""
    return states.flatten(1, 3).transpose(1, 2)
