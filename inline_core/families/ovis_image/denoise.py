"""The forward pass of Ovis-Image as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.patches import patched, unpatched

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt


class OvisImageDenoiser(NetworkDenoiser):
    """A loaded OvisImageTransformer2DModel.  Device thread only."""

    two_streams = True

    @property
    def blocks(self) -> Sequence[Any]:
        """The repeated blocks in order; all of them give (text, picture)."""
        return [*self._model.transformer_blocks, *self._model.single_transformer_blocks]

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[EncodedPrompt]
    ) -> Tensor:
        """See `Denoiser.predict`.

        The model takes sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in OvisImagePipeline).
        """
        dtype = self._model.dtype
        height, width = latents.shape[-2] // 2, latents.shape[-1] // 2
        features = torch.stack([prompt.features for prompt in conditioning])  # (rows, 256, width)
        grid = [torch.arange(size, device=latents.device) for size in (1, height, width)]
        place = torch.arange(features.shape[1], device=latents.device)  # (256,)
        output = self._model(
            hidden_states=patched(latents).to(dtype),
            encoder_hidden_states=features.to(dtype),
            timestep=sigmas,
            img_ids=torch.cartesian_prod(*grid),  # (places, 3)
            txt_ids=torch.stack([torch.zeros_like(place), place, place], dim=1),  # (256, 3)
            return_dict=False,
        )[0]  # (rows, places, 4 * channels)
        velocity = unpatched(output.float(), height, width)  # (rows, c, h, w)
        return latents - sigmas.view(-1, 1, 1, 1) * velocity
