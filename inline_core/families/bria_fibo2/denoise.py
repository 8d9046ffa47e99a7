"""The forward pass of Bria FIBO 2 as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn import functional

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.encoded_prompt import padded

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt

_PATCH: Final = 2


class BriaFibo2Denoiser(NetworkDenoiser):
    """A loaded BriaFibo2Transformer2DModel.  Device thread only."""

    @property
    def other_blocks(self) -> Sequence[Any]:
        """All blocks: the order of their tokens depends on who else is in a pass."""
        return [*self._model.noise_refiner, *self._model.layers]

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[EncodedPrompt]
    ) -> Tensor:
        """See `Denoiser.predict`; latents (rows, 128, height, width), patches of the VAE's.

        The model takes sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in BriaFibo2Pipeline).
        """
        dtype = self._model.dtype
        features, mask = padded(conditioning)  # (rows, tokens, bundles, width), (rows, tokens)
        rows = [getattr(prompt, "references", ()) for prompt in conditioning]
        shown = [torch.cat(pictures) for pictures in zip(*rows, strict=True)]
        output = self._model(
            hidden_states=functional.pixel_shuffle(latents, _PATCH).to(dtype),
            timestep=sigmas,
            encoder_hidden_states=features.transpose(1, 2).to(dtype),
            encoder_attention_mask=None if bool(mask.all()) else mask,
            context_latents=[functional.pixel_shuffle(item, _PATCH).to(dtype) for item in shown],
            return_dict=False,
        )[0]  # (rows, 32, 2 height, 2 width)
        velocity = functional.pixel_unshuffle(output.float(), _PATCH)  # (rows, 128, h, w)
        return latents - sigmas.view(-1, 1, 1, 1) * velocity
