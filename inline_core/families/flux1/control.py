"""ControlNets of FLUX.1: what they add after its blocks, row by row.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from diffusers import FluxControlNetModel
from torch.nn import functional

from inline_core.families import transformer
from inline_core.families.control_residuals import Parts, Uses, for_blocks, summed
from inline_core.families.flux1.keys import TABLE
from inline_core.families.patches import patched
from inline_core.loading.stream import LoadPlan

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt


USUAL_GUIDANCE: Final = 3.5


@dataclass(frozen=True, slots=True, eq=False)
class Flux1Control:
    """A loaded FluxControlNetModel.  Device thread only."""

    module: Any


def load_control(plan: LoadPlan) -> Flux1Control:
    """A ControlNet for FLUX.1.  Raises: ModelFileInvalid, RunCancelled."""
    module = transformer.load_transformer(plan, FluxControlNetModel, TABLE)
    # What kind of picture a union is shown is not told to it.
    module.union = False
    return Flux1Control(module)


def block_samples(
    model: Any,
    conditioning: Sequence[EncodedPrompt],
    sigmas: Tensor,
    latents: Tensor,
    inputs: Mapping[str, Any],
) -> dict[str, Any]:
    """What the transformer `model` adds to all its picture tokens, as its arguments.

    Empty where no row has a ControlNet that counts at its sigma.  `latents` are the tokens (rows,
    places, width) of the noisy latents; behind them may be those of references, which ControlNets
    neither see nor change.  `inputs` are the other arguments of the transformer.
    """
    own = latents.shape[1]
    others = len(inputs["img_ids"]) - own

    def run(uses: Uses) -> Parts:
        index, network = uses.index, uses.network.module
        guidance = inputs["guidance"]
        if not network.config.guidance_embeds:
            guidance = None
        elif guidance is None:  # of a model that knows none
            guidance = sigmas.new_full(sigmas.shape, USUAL_GUIDANCE)
        parts = network(
            hidden_states=latents[index],
            controlnet_cond=patched(uses.hints.to(latents.dtype)),  # (used, places, width)
            encoder_hidden_states=inputs["encoder_hidden_states"][index],
            pooled_projections=inputs["pooled_projections"][index],
            timestep=sigmas[index],
            img_ids=inputs["img_ids"][:own],
            txt_ids=inputs["txt_ids"],
            guidance=None if guidance is None else guidance[index],
            return_dict=False,
        )
        return [part or () for part in parts]  # each (used, places, width)

    sums = summed(conditioning, sigmas, run)
    found = {
        "controlnet_block_samples": for_blocks(sums, 0, len(model.transformer_blocks)),
        "controlnet_single_block_samples": for_blocks(
            sums, 1, len(model.single_transformer_blocks)
        ),
    }
    return {
        name: [functional.pad(part, (0, 0, 0, others)) for part in parts] if others else parts
        for name, parts in found.items()
        if parts is not None
    }
