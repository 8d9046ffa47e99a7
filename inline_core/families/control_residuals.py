"""What ControlNets add between the blocks of a network, summed row by row.

Imports torch, so it is imported on the device thread only.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.controls import LoadedControl
    from inline_core.families.encoded_prompt import EncodedPrompt


@dataclass(frozen=True, slots=True, eq=False)
class Uses:
    """One network, the numbers of the rows (used,) that it is run with, and what each looks at."""

    network: Any
    index: Tensor
    controls: Sequence[LoadedControl]

    @property
    def hints(self) -> Tensor:
        """(used, channels, ...)."""
        return torch.stack([control.hint for control in self.controls])


Parts = Sequence[Sequence["Tensor"]]


def summed(
    conditioning: Sequence[EncodedPrompt],
    sigmas: Tensor,
    run: Callable[[Uses], Parts],
) -> list[Parts]:
    """The sums of what all ControlNets give, one for each number of parts that networks have.

    `run` gives the parts (used, ...) of a network, for each kind of block of the model in order;
    they are multiplied with the strengths here.
    Empty where no row has a ControlNet that counts at its sigma.  Rows without one get zeros, and
    networks are run with the rows that have them only, those of one length of text together,
    since not all of these networks know a mask.
    """
    uses: defaultdict[tuple[int, int], list[tuple[int, LoadedControl]]] = defaultdict(list)
    for row, (prompt, sigma) in enumerate(zip(conditioning, sigmas.tolist(), strict=True)):
        for control in prompt.controls:
            if control.counts_at(sigma):
                uses[id(control.network), len(prompt.features)].append((row, control))
    totals: dict[tuple[int, ...], list[list[Tensor]]] = {}
    rows = len(conditioning)
    for found in uses.values():
        index = torch.tensor([row for row, _ in found], device=sigmas.device)  # (used,)
        controls = [control for _, control in found]
        parts = run(Uses(controls[0].network, index, controls))
        strengths = torch.tensor([control.strength for control in controls], device=sigmas.device)
        counts = tuple(map(len, parts))
        if counts not in totals:
            totals[counts] = [[one.new_zeros(rows, *one.shape[1:]) for one in of] for of in parts]
        for sums, of in zip(totals[counts], parts, strict=True):
            for total, one in zip(sums, of, strict=True):
                scale = strengths.to(one.dtype).view(-1, *(1 for _ in one.shape[1:]))  # (used, 1..)
                total.index_add_(0, index, one * scale)
    return list(totals.values())


def for_blocks(
    sums: Sequence[Parts], kind: int, blocks: int, place: Callable[[int, int], int] | None = None
) -> Sequence[Tensor] | None:
    """What is added after each block of a kind, in the form that a transformer spreads itself.

    `place(block, parts)` is the number of the part that it adds after a block; by default one part
    for several blocks in a row, as in diffusers.  None for nothing.
    """
    given = [parts[kind] for parts in sums if parts[kind]]
    if len(given) <= 1:
        return given[0] if given else None
    where = place or (lambda block, parts: block // math.ceil(blocks / parts))
    return [
        torch.stack([parts[where(block, len(parts))] for parts in given]).sum(0)  # (rows, ...)
        for block in range(blocks)
    ]
