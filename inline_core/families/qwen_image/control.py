"""ControlNets of Qwen-Image (InstantX): what they add after its blocks, row by row.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diffusers import QwenImageControlNetModel
from torch.nn import functional

from inline_core.families import transformer
from inline_core.families.control_residuals import Parts, Uses, for_blocks, summed
from inline_core.families.encoded_prompt import padded
from inline_core.families.patches import patched
from inline_core.families.qwen_image.keys import TABLE
from inline_core.loading.stream import LoadPlan

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt


@dataclass(frozen=True, slots=True, eq=False)
class QwenImageControl:
    """A loaded QwenImageControlNetModel.  Device thread only."""

    module: Any


def load_control(plan: LoadPlan) -> QwenImageControl:
    """A ControlNet for Qwen-Image.  Raises: ModelFileInvalid, RunCancelled."""
    return QwenImageControl(transformer.load_transformer(plan, QwenImageControlNetModel, TABLE))


def block_samples(
    conditioning: Sequence[EncodedPrompt],
    sigmas: Tensor,
    pictures: Sequence[Tensor],
    blocks: int,
) -> Sequence[Tensor] | None:
    """What the transformer with so many `blocks` adds to all its picture tokens, as its argument.

    None where no row has a ControlNet that counts at its sigma.  `pictures` are tokens (rows,
    places, width) of the noisy latents first, then those of references, which ControlNets neither
    see nor change.
    """
    latents = pictures[0]  # (rows, places, width)
    others = sum(picture.shape[1] for picture in pictures[1:])

    def run(uses: Uses) -> Parts:
        hints = uses.hints.to(latents.dtype)  # (used, channels, 1, h, w)
        features, mask = padded([conditioning[row] for row in uses.index.tolist()])
        height, width = hints.shape[-2] // 2, hints.shape[-1] // 2
        parts: Sequence[Tensor] = uses.network.module(
            hidden_states=latents[uses.index],
            controlnet_cond=patched(hints[:, :, 0]),  # (used, places, 4 * channels)
            encoder_hidden_states=features.to(latents.dtype),  # (used, tokens, width)
            encoder_hidden_states_mask=None if bool(mask.all()) else mask,
            timestep=sigmas[uses.index],
            img_shapes=[[(1, height, width)]] * len(uses.index),
            return_dict=False,
        )
        return [parts]  # each (used, places, width)

    parts = for_blocks(summed(conditioning, sigmas, run), 0, blocks)
    if parts is None or not others:
        return parts
    return [functional.pad(part, (0, 0, 0, others)) for part in parts]  # (rows, all places, width)
