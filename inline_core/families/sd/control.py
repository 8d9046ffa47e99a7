"""ControlNets of Stable Diffusion: what they add to the states of the U-Net, row by row.

Imports torch, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.controls import LoadedControl
    from inline_core.families.sd.text import SdPrompt


@dataclass(frozen=True, slots=True, eq=False)
class UNetControl:
    """A loaded ControlNetModel.  Device thread only."""

    module: Any


def residuals(
    conditioning: Sequence[SdPrompt],
    sigmas: Tensor,
    inputs: Tensor,
    times: Tensor,
    added: Mapping[str, Tensor] | None,
) -> dict[str, Any]:
    """What the U-Net adds to its skipped states and to its middle, as its arguments.

    Empty where no row has a ControlNet that counts at its sigma.  `inputs` (rows, channels, h, w)
    are scaled, `times` (rows,), `added` as in the U-Net.  Rows without one get zeros, and networks
    are run with the rows that have them only.
    """
    if not any(prompt.controls for prompt in conditioning):
        return {}
    uses: defaultdict[tuple[int, int], list[tuple[int, LoadedControl]]] = defaultdict(list)
    for row, (prompt, sigma) in enumerate(zip(conditioning, sigmas.tolist(), strict=True)):
        for control in prompt.controls:
            if control.counts_at(sigma):
                # Prompts of other lengths go apart, since these networks know no mask.
                uses[id(control.network), len(prompt.features)].append((row, control))
    totals: list[Tensor] = []
    for found in uses.values():
        index = torch.tensor([row for row, _ in found], device=inputs.device)  # (used,)
        made = _run(found, index, conditioning, inputs, times, added)
        if not totals:
            totals = [part.new_zeros(len(conditioning), *part.shape[1:]) for part in made]
        for total, part in zip(totals, made, strict=True):
            total.index_add_(0, index, part)
    if not totals:
        return {}
    return {
        "down_block_additional_residuals": totals[:-1],
        "mid_block_additional_residual": totals[-1],
    }


def _run(
    found: Sequence[tuple[int, LoadedControl]],
    index: Tensor,
    conditioning: Sequence[SdPrompt],
    inputs: Tensor,
    times: Tensor,
    added: Mapping[str, Tensor] | None,
) -> list[Tensor]:
    """One network for some rows: its outputs in order, the middle last, times their strengths."""
    model, dtype = found[0][1].network.module, inputs.dtype
    down, middle = model(
        inputs[index],
        times[index],
        encoder_hidden_states=torch.stack([conditioning[row].features for row, _ in found]).to(
            dtype
        ),
        controlnet_cond=torch.stack([control.hint for _, control in found]).to(dtype),
        added_cond_kwargs=None if added is None else {key: added[key][index] for key in added},
        return_dict=False,
    )
    strengths = torch.tensor([control.strength for _, control in found], device=inputs.device)
    scale = strengths.to(dtype).view(-1, 1, 1, 1)  # (used, 1, 1, 1)
    return [part * scale for part in (*down, middle)]
