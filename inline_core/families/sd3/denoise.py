"""The forward pass of Stable Diffusion 3 as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn import functional

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.sd3.text import CLIP_TOKENS, T5_TOKENS, widened

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt

_TIMES: Final = 1000


class Sd3Denoiser(NetworkDenoiser):
    """A loaded SD3Transformer2DModel.  Device thread only."""

    two_streams = True

    @property
    def blocks(self) -> Sequence[Any]:
        """The joint blocks in order, which all take and give text and picture."""
        return list(self._model.transformer_blocks)

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[EncodedPrompt]
    ) -> Tensor:
        """See `Denoiser.predict`.

        The model takes 1000 sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in StableDiffusion3Pipeline).
        """
        dtype = self._model.dtype
        width = self._model.config.joint_attention_dim
        output: Tensor = self._model(
            hidden_states=latents.to(dtype),
            encoder_hidden_states=torch.stack([_features(p, width) for p in conditioning]).to(
                dtype
            ),  # (rows, tokens, width)
            pooled_projections=torch.stack([_pooled(p) for p in conditioning]).to(dtype),
            timestep=sigmas * _TIMES,
            return_dict=False,
        )[0]  # (rows, channels, height, width)
        return latents - sigmas.view(-1, 1, 1, 1) * output.float()


def _features(prompt: EncodedPrompt, width: int) -> Tensor:
    """Features (77 + 256, width); those of T5 are zeros where there is none."""
    features = widened(prompt.features, width)  # (tokens, width)
    missing = CLIP_TOKENS + T5_TOKENS - len(features)
    return functional.pad(features, (0, 0, 0, missing))


def _pooled(prompt: EncodedPrompt) -> Tensor:
    assert prompt.pooled is not None
    return prompt.pooled
