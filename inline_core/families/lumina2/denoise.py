"""The forward pass of Lumina 2 as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.encoded_prompt import padded

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt


class Lumina2Denoiser(NetworkDenoiser):
    """A loaded Lumina2Transformer2DModel.  Device thread only."""

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
        clean = x - sigma * v = x + sigma * output (as in Lumina2Pipeline).
        """
        dtype = self._model.dtype
        features, mask = padded(conditioning)  # (rows, tokens, width), (rows, tokens)
        output: Tensor = self._model(
            hidden_states=latents.to(dtype),
            timestep=1.0 - sigmas,
            encoder_hidden_states=features.to(dtype),
            encoder_attention_mask=mask,
            return_dict=False,
        )[0]  # (rows, c, h, w)
        return latents + sigmas.view(-1, 1, 1, 1) * output.float()
