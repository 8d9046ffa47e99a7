"""The forward pass of ERNIE-Image as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.encoded_prompt import padded

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt

_TIME: Final = 1000.0


class ErnieImageDenoiser(NetworkDenoiser):
    """A loaded ErnieImageTransformer2DModel.  Device thread only."""

    @property
    def other_blocks(self) -> Sequence[Any]:
        """All blocks: they have tokens before rows, so none is reused or left out."""
        return list(self._model.layers)

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[EncodedPrompt]
    ) -> Tensor:
        """See `Denoiser.predict`; latents (rows, 128, height, width).

        The model takes 1000 sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in ErnieImagePipeline).
        """
        dtype = self._model.dtype
        features, mask = padded(conditioning)  # (rows, tokens, width), (rows, tokens)
        velocity: Tensor = self._model(
            hidden_states=latents.to(dtype),
            timestep=sigmas * _TIME,
            text_bth=features.to(dtype),
            text_lens=mask.sum(1),
            return_dict=False,
        )[0]  # (rows, 128, h, w)
        return latents - sigmas.view(-1, 1, 1, 1) * velocity.float()
