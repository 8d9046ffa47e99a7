"""The forward pass of Ideogram 4 as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers.models.transformers.transformer_ideogram4 import (
    IMAGE_POSITION_OFFSET,
    LLM_TOKEN_INDICATOR,
    OUTPUT_IMAGE_INDICATOR,
    SEQUENCE_PADDING_INDICATOR,
)

from inline_core.families.denoiser import NetworkDenoiser

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt

_PATCH: Final = 4  # values of a channel in a patch of 2 x 2
_AXES: Final = 3
_ONE_SEGMENT: Final = 1


class Ideogram4Denoiser(NetworkDenoiser):
    """A loaded Ideogram4Transformer2DModel.  Device thread only."""

    @property
    def blocks(self) -> Sequence[Any]:
        """The repeated blocks in order: words and picture go through them as one."""
        return list(self._model.layers)

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[EncodedPrompt]
    ) -> Tensor:
        """See `Denoiser.predict`; latents (rows, 128, height, width) in FLUX.2's order.

        The model takes 1 - sigma as time and gives the velocity clean - noise, so
        clean = x + sigma * v (as in Ideogram4Pipeline).
        """
        dtype = self._model.dtype
        rows, channels, height, width = latents.shape
        places = height * width
        lengths = [len(prompt.features) for prompt in conditioning]
        words = max(lengths)
        size = conditioning[0].features.shape[1]
        features = latents.new_zeros((rows, words + places, size))  # (rows, tokens, size)
        for row, prompt in enumerate(conditioning):
            features[row, words - lengths[row] : words] = prompt.features.float()
        noisy = latents.new_zeros((rows, words + places, channels))  # (rows, tokens, 128)
        noisy[:, words:] = packed(latents)
        positions, segments, kinds = _layout(lengths, height, width, latents.device)
        output = self._model(
            hidden_states=noisy.to(dtype),
            timestep=1.0 - sigmas,
            encoder_hidden_states=features.to(dtype),
            position_ids=positions,
            segment_ids=segments,
            indicator=kinds,
            return_dict=False,
        )[0][:, words:]  # (rows, places, 128)
        velocity = unpacked(output.float(), height, width)  # (rows, 128, h, w)
        return latents + sigmas.view(-1, 1, 1, 1) * velocity


def packed(latents: Tensor) -> Tensor:
    """Latents (rows, 128, h, w) -> (rows, h * w, 128) with the channels innermost in a patch.

    FLUX.2's VAE has the places of a patch innermost.
    """
    rows, channels, height, width = latents.shape
    split = latents.reshape(rows, channels // _PATCH, _PATCH, height * width)  # (rows, 32, 4, hw)
    tokens: Tensor = split.permute(0, 3, 2, 1).reshape(rows, height * width, channels)
    return tokens


def unpacked(tokens: Tensor, height: int, width: int) -> Tensor:
    """The reverse of `packed`."""
    rows, places, channels = tokens.shape
    split = tokens.reshape(rows, places, _PATCH, channels // _PATCH)  # (rows, hw, 4, 32)
    latents: Tensor = split.permute(0, 3, 2, 1).reshape(rows, channels, height, width)
    return latents


def _layout(
    lengths: Sequence[int], height: int, width: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Where each token stands, what it may see, and what it is: padding, words, then picture.

    Positions (rows, tokens, 3), the others (rows, tokens); as `_prepare_ids` of the pipeline.
    """
    words, places = max(lengths), height * width
    shape = (len(lengths), words + places)
    grid = torch.cartesian_prod(*[torch.arange(side) for side in (1, height, width)])  # (places, 3)
    positions = torch.zeros((*shape, _AXES), dtype=torch.long)  # (rows, tokens, 3)
    segments = torch.full(shape, SEQUENCE_PADDING_INDICATOR)  # (rows, tokens)
    kinds = torch.zeros(shape, dtype=torch.long)  # (rows, tokens)
    positions[:, words:] = grid + IMAGE_POSITION_OFFSET
    kinds[:, words:] = OUTPUT_IMAGE_INDICATOR
    for row, length in enumerate(lengths):
        start = words - length
        positions[row, start:words] = torch.arange(length)[:, None]  # (tokens, 1)
        kinds[row, start:words] = LLM_TOKEN_INDICATOR
        segments[row, start:] = _ONE_SEGMENT
    return positions.to(device), segments.to(device), kinds.to(device)
