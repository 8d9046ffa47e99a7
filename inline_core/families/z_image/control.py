"""Z-Image's union ControlNets: what they add to the states between its blocks, row by row.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers import ZImageControlNetModel
from diffusers.models.transformers.transformer_z_image import SEQ_MULTI_OF
from torch.nn import functional

from inline_core.families import transformer
from inline_core.families.z_image.attention import attend_lengthwise
from inline_core.families.z_image.keys import CONTROL_KEYS
from inline_core.loading.offload import whole

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.controls import LoadedControl
    from inline_core.families.encoded_prompt import EncodedPrompt
    from inline_core.loading.stream import LoadPlan

# What a ControlNet takes from the transformer while it runs (`from_transformer`).
_SHARED: Final = (
    "t_scale",
    "t_embedder",
    "all_x_embedder",
    "cap_embedder",
    "rope_embedder",
    "noise_refiner",
    "context_refiner",
    "x_pad_token",
    "cap_pad_token",
)
_PATCH: Final = 2

Use = tuple[int, "LoadedControl"]


@dataclass(frozen=True, slots=True, eq=False)
class ZImageControl:
    """A loaded ZImageControlNetModel, without what it shares.  Device thread only."""

    module: Any


def load_control(plan: LoadPlan) -> ZImageControl:
    """A ControlNet for Z-Image.  Raises: ModelFileInvalid, RunCancelled."""
    module = transformer.load_transformer(plan, ZImageControlNetModel, CONTROL_KEYS)
    if module.add_control_noise_refiner == "control_noise_refiner":
        before = module.control_noise_refiner[0].before_proj.weight
        if not bool(before.count_nonzero()):
            # Files of 2.0 hold refiners that were never trained: the first blocks stand in for
            # them (the same test as in diffusers' `infer_diffusers_model_type`).
            module.add_control_noise_refiner = "control_layers"
            module.control_noise_refiner = None
    attend_lengthwise(module)
    return ZImageControl(module)


def block_samples(
    model: Any,
    conditioning: Sequence[EncodedPrompt],
    sigmas: Tensor,
    inputs: Sequence[Tensor],
    prompts: Sequence[Tensor],
) -> dict[int, Tensor] | None:
    """What is added after each block of the transformer `model`, as its argument.

    None where no row has a ControlNet that counts at its sigma.  `inputs` are rows of latents
    (channels, 1, h, w), `prompts` rows of features (tokens, width).  Rows without one get zeros,
    and networks are run with the rows that have them only.
    """
    uses: defaultdict[int, list[Use]] = defaultdict(list)
    for row, (prompt, sigma) in enumerate(zip(conditioning, sigmas.tolist(), strict=True)):
        for control in prompt.controls:
            if control.counts_at(sigma):
                uses[id(control.network)].append((row, control))
    if not uses:
        return None
    tokens = max(map(_tokens, inputs, prompts))
    totals: dict[int, Tensor] = {}
    for found in uses.values():
        index = torch.tensor([row for row, _ in found], device=sigmas.device)  # (used,)
        for place, part in _run(model, found, sigmas[index], inputs, prompts).items():
            if place not in totals:
                totals[place] = part.new_zeros(len(inputs), tokens, part.shape[-1])
            totals[place][:, : part.shape[1]].index_add_(0, index, part)
    return totals


def _run(
    model: Any,
    found: Sequence[Use],
    sigmas: Tensor,
    inputs: Sequence[Tensor],
    prompts: Sequence[Tensor],
) -> Mapping[int, Tensor]:
    """One network for some rows: (used, tokens, width) by block, times their strengths."""
    network = found[0][1].network.module
    channels, dtype = network.config.control_in_dim, inputs[0].dtype
    hints = [_filled(control.hint.to(dtype), channels) for _, control in found]
    strengths = torch.tensor([control.strength for _, control in found], device=sigmas.device)
    with whole(model), _sharing(network, model):
        samples: Mapping[int, Tensor] = network(
            [inputs[row] for row, _ in found],
            1.0 - sigmas,
            [prompts[row] for row, _ in found],
            hints,
            conditioning_scale=strengths.to(dtype).view(-1, 1, 1),  # (used, 1, 1)
        )
    return samples


def _filled(hint: Tensor, channels: int) -> Tensor:
    """Latents (c, h, w) -> (channels, 1, h, w): nothing is to be kept, and there is no picture.

    The further channels of 2.x are a mask of what is kept and the latents of that picture.
    """
    return functional.pad(hint, (0, 0, 0, 0, 0, channels - hint.shape[0])).unsqueeze(1)


def _tokens(latents: Tensor, prompt: Tensor) -> int:
    """Tokens of one row: those of the picture and of the prompt, each padded as the model does."""
    height, width = latents.shape[-2:]
    counts = ((height // _PATCH) * (width // _PATCH), len(prompt))
    return sum(-(-count // SEQ_MULTI_OF) * SEQ_MULTI_OF for count in counts)


@contextmanager
def _sharing(network: Any, model: Any) -> Iterator[None]:
    """The ControlNet with the embedders and refiners of a transformer, within.

    Not longer, as it may serve another transformer next and must not keep this one in memory.
    """
    ZImageControlNetModel.from_transformer(network, model)
    try:
        yield
    finally:
        for name in _SHARED:
            setattr(network, name, None)
