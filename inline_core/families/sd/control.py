"""ControlNets of Stable Diffusion: what they add to the states of the U-Net, row by row.

Imports torch, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from inline_core.families.control_residuals import Parts, Uses, summed

if TYPE_CHECKING:
    from torch import Tensor

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
    are scaled, `times` (rows,), `added` as in the U-Net.
    """
    dtype = inputs.dtype

    def run(uses: Uses) -> Parts:
        features = [conditioning[row].features for row in uses.index.tolist()]
        index = uses.index
        down, middle = uses.network.module(
            inputs[index],
            times[index],
            encoder_hidden_states=torch.stack(features).to(dtype),  # (used, tokens, width)
            controlnet_cond=uses.hints.to(dtype),
            added_cond_kwargs=None if added is None else {key: added[key][index] for key in added},
            return_dict=False,
        )
        return [[*down, middle]]

    sums = summed(conditioning, sigmas, run)
    if not sums:
        return {}
    totals = sums[0][0]  # of one U-Net, all have the same number
    return {
        "down_block_additional_residuals": totals[:-1],
        "mid_block_additional_residual": totals[-1],
    }
