"""The forward pass of Krea 2 as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.encoded_prompt import padded
from inline_core.families.patches import patched, unpatched

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt

_AXES: Final = 3


class Krea2Denoiser(NetworkDenoiser):
    """A loaded Krea2Transformer2DModel.  Device thread only."""

    @property
    def blocks(self) -> Sequence[Any]:
        """The repeated blocks in order: text and picture go through them as one."""
        return list(self._model.transformer_blocks)

    @property
    def other_blocks(self) -> Sequence[Any]:
        """The blocks that join the layers of the text encoder."""
        fusion = self._model.text_fusion
        return [*fusion.layerwise_blocks, *fusion.refiner_blocks]

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[EncodedPrompt]
    ) -> Tensor:
        """See `Denoiser.predict`; latents (rows, channels, 1, height, width).

        The model takes sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in Krea2Pipeline).
        """
        dtype = self._model.dtype
        pictures = latents[:, :, 0]  # (rows, channels, height, width)
        features, mask = padded(conditioning)  # (rows, tokens, layers, width), (rows, tokens)
        height, width = pictures.shape[-2] // 2, pictures.shape[-1] // 2
        output = self._model(
            hidden_states=patched(pictures).to(dtype),
            encoder_hidden_states=features.to(dtype),
            timestep=sigmas,
            position_ids=_places(features.shape[1], height, width, latents.device),
            encoder_attention_mask=None if bool(mask.all()) else mask,
            return_dict=False,
        )[0]  # (rows, places, 4 * channels)
        velocity = unpatched(output.float(), height, width).unsqueeze(2)  # (rows, c, 1, h, w)
        return latents - sigmas.view(-1, 1, 1, 1, 1) * velocity


def _places(text: int, height: int, width: int, device: torch.device) -> Tensor:
    """(time, row, column) of each token; all of the text is at the origin."""
    grid = [torch.arange(size, device=device) for size in (1, height, width)]
    places = torch.cartesian_prod(*grid)  # (height * width, 3)
    return torch.cat([torch.zeros((text, _AXES), device=device), places])  # (tokens, 3)
