"""What ControlNets add between the blocks of a network, summed row by row.

Imports torch, so it is imported on the device thread only.
"""

from __future__ import annotations

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


def summed(
    conditioning: Sequence[EncodedPrompt],
    sigmas: Tensor,
    run: Callable[[Uses], Sequence[Tensor]],
) -> list[list[Tensor]]:
    """The sums of what all ControlNets give, a list for each number of parts that networks have.

    `run` gives the parts (used, ...) of a network; they are multiplied with the strengths here.
    Empty where no row has a ControlNet that counts at its sigma.  Rows without one get zeros, and
    networks are run with the rows that have them only, those of one length of text together,
    since not all of these networks know a mask.
    """
    uses: defaultdict[tuple[int, int], list[tuple[int, LoadedControl]]] = defaultdict(list)
    for row, (prompt, sigma) in enumerate(zip(conditioning, sigmas.tolist(), strict=True)):
        for control in prompt.controls:
            if control.counts_at(sigma):
                uses[id(control.network), len(prompt.features)].append((row, control))
    totals: dict[int, list[Tensor]] = {}
    for found in uses.values():
        index = torch.tensor([row for row, _ in found], device=sigmas.device)  # (used,)
        controls = [control for _, control in found]
        parts = run(Uses(controls[0].network, index, controls))
        strengths = torch.tensor([control.strength for control in controls], device=sigmas.device)
        if len(parts) not in totals:
            rows = len(conditioning)
            totals[len(parts)] = [part.new_zeros(rows, *part.shape[1:]) for part in parts]
        for total, part in zip(totals[len(parts)], parts, strict=True):
            scale = strengths.to(part.dtype).view(-1, *(1 for _ in part.shape[1:]))  # (used, 1...)
            total.index_add_(0, index, part * scale)
    return list(totals.values())


def for_blocks(
    sums: Sequence[Sequence[Tensor]], blocks: int, place: Callable[[int, int], int]
) -> Sequence[Tensor] | None:
    """What is added after each block, in the form that a transformer of diffusers spreads itself.

    `place(block, parts)` is the number of the part that it adds after a block.  None for nothing.
    """
    if len(sums) <= 1:
        return sums[0] if sums else None
    return [
        torch.stack([parts[place(block, len(parts))] for parts in sums]).sum(0)  # (rows, ...)
        for block in range(blocks)
    ]
