"""The forward pass of Qwen-Image as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.encoded_prompt import padded
from inline_core.families.patches import patched, unpatched
from inline_core.families.qwen_image.control import block_samples

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt


class QwenImageDenoiser(NetworkDenoiser):
    """A loaded QwenImageTransformer2DModel.  Device thread only."""

    two_streams = True

    @property
    def blocks(self) -> Sequence[Any]:
        """The repeated blocks in order; none where references have a time of their own.

        Then a row has two rows of modulation, which cannot be told apart from those of others.
        """
        return [] if self._model.zero_cond_t else list(self._model.transformer_blocks)

    @property
    def other_blocks(self) -> Sequence[Any]:
        """Blocks that are only asked to stop."""
        return list(self._model.transformer_blocks) if self._model.zero_cond_t else []

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[EncodedPrompt]
    ) -> Tensor:
        """See `Denoiser.predict`; latents (rows, channels, 1, height, width).

        The model takes sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in QwenImagePipeline).
        """
        dtype = self._model.dtype
        pictures = [latents, *_references(conditioning)]  # each (rows, channels, 1, h, w)
        grids = [(1, item.shape[-2] // 2, item.shape[-1] // 2) for item in pictures]
        tokens = [patched(item[:, :, 0]) for item in pictures]  # each (rows, places, 4 * channels)
        tokens = [item.to(dtype) for item in tokens]
        features, mask = padded(conditioning)  # (rows, tokens, width), (rows, tokens)
        blocks = len(self._model.transformer_blocks)
        output = self._model(
            hidden_states=torch.cat(tokens, dim=1),
            encoder_hidden_states=features.to(dtype),
            encoder_hidden_states_mask=None if bool(mask.all()) else mask,
            timestep=sigmas,
            img_shapes=[grids] * latents.shape[0],
            controlnet_block_samples=block_samples(conditioning, sigmas, tokens, blocks),
            return_dict=False,
        )[0][:, : tokens[0].shape[1]]  # (rows, places, 4 * channels)
        velocity = unpatched(output.float(), *grids[0][1:]).unsqueeze(2)  # (rows, c, 1, h, w)
        return latents - sigmas.view(-1, 1, 1, 1, 1) * velocity


def _references(conditioning: Sequence[EncodedPrompt]) -> list[Tensor]:
    """The pictures that the rows look at, each (rows, channels, 1, h, w); all rows have them."""
    rows = [getattr(prompt, "references", ()) for prompt in conditioning]
    return [torch.cat(pictures) for pictures in zip(*rows, strict=True)]
