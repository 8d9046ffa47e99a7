"""A part of a model's blocks, where each process of a pipeline holds its own (PipeFusion).

Imports torch, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import torch

# The lists of blocks of each class of networks, in the order they run in.
STAGED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"FluxTransformer2DModel": ("transformer_blocks", "single_transformer_blocks")}
)


class AbsentBlock(torch.nn.Module):
    """Stands where a block is that another process holds."""


def stage_bounds(blocks: int, stage: int, stages: int) -> tuple[int, int]:
    """The first block of a stage and the one after its last, as xDiT divides them.

    ``ceil(blocks / stages)`` in each, what is left in the last.
    """
    share = -(-blocks // stages)
    return min(stage * share, blocks), min((stage + 1) * share, blocks)


def keep_stage(model: Any, stage: int, stages: int) -> tuple[str, ...]:
    """Put `AbsentBlock`s in place of the blocks of other stages; gives their names.

    Raises: KeyError for a class that is not `STAGED`.
    """
    lists: Sequence[str] = STAGED[type(model).__name__]
    places = [(name, index) for name in lists for index in range(len(getattr(model, name)))]
    first, end = stage_bounds(len(places), stage, stages)
    dropped = []
    for place, (name, index) in enumerate(places):
        if not first <= place < end:
            getattr(model, name)[index] = AbsentBlock()
            dropped.append(f"{name}.{index}.")
    return tuple(dropped)
