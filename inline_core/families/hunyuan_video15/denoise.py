"""The forward pass of HunyuanVideo 1.5 as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.hunyuan_video15.network import prepared

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.hunyuan_video15.text import HunyuanPrompt

_TIMES: Final = 1000.0


class HunyuanVideo15Denoiser(NetworkDenoiser):
    """A loaded HunyuanVideo15Network.  Device thread only."""

    two_streams = True

    def __init__(self, model: Any) -> None:
        super().__init__(prepared(model))

    @property
    def blocks(self) -> Sequence[Any]:
        """The repeated blocks in order."""
        return list(self._model.transformer_blocks)

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[HunyuanPrompt]
    ) -> Tensor:
        """See `Denoiser.predict`; latents (rows, channels, t, height, width).

        The model takes 1000 sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in HunyuanVideo15Pipeline).  Beside the noise lie the latents of
        the first frame and which of them are given; zeros where there is none.
        """
        nothing = latents.new_zeros((latents.shape[1] + 1, *latents.shape[2:]))
        beside = [nothing if row.beside is None else row.beside for row in conditioning]
        inputs = torch.cat([latents, torch.stack(beside)], dim=1)  # (rows, 2 c + 1, t, h, w)
        velocity: Tensor = self._model(inputs, sigmas * _TIMES, conditioning)  # (rows, c, t, h, w)
        return latents - sigmas.view(-1, 1, 1, 1, 1) * velocity.float()
