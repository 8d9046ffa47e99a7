"""The forward pass of Z-Image as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.z_image.attention import attend_lengthwise
from inline_core.families.z_image.control import block_samples

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.z_image.text import EncodedPrompt


class ZImageDenoiser(NetworkDenoiser):
    """A loaded ZImageTransformer2DModel.  Device thread only."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        attend_lengthwise(model)

    @property
    def blocks(self) -> Sequence[Any]:
        """The repeated blocks in order, whose first inputs are hidden states and a mask."""
        return list(self._model.layers)

    @property
    def other_blocks(self) -> Sequence[Any]:
        """The blocks that refine the noise and the prompt before they are joined."""
        return [*self._model.noise_refiner, *self._model.context_refiner]

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[EncodedPrompt]
    ) -> Tensor:
        """See `Denoiser.predict`.

        The model takes 1 - sigma as time and gives the negative of the velocity noise - clean, so
        clean = x - sigma * v = x + sigma * output (as in ZImagePipeline).
        """
        dtype = self._model.dtype
        inputs = list(latents.to(dtype).unsqueeze(2).unbind(0))  # members x (c, 1, h, w)
        prompts = [
            prompt.features.to(dtype) for prompt in conditioning
        ]  # members x (tokens, width)
        samples = block_samples(self._model, conditioning, sigmas, inputs, prompts)
        outputs = self._model(
            inputs, 1.0 - sigmas, prompts, controlnet_block_samples=samples, return_dict=False
        )[0]
        output = torch.stack([item.float() for item in outputs]).squeeze(2)  # (members, c, h, w)
        return latents + sigmas.view(-1, 1, 1, 1) * output
