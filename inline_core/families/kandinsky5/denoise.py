"""The forward pass of Kandinsky 5 as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from inline_core.families.denoiser import NetworkDenoiser

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt

_TIME: Final = 1000.0
_PATCH: Final = 2
_FACTOR: Final = 8
# Of Kandinsky5T2VPipeline: sides that are trained at, and how others are scaled to them.
_TRAINED: Final = (480, 854)
_SCALES: Final = ((1.0, 2.0, 2.0), (1.0, 3.16, 3.16))


class Kandinsky5Denoiser(NetworkDenoiser):
    """A loaded Kandinsky5Transformer3DModel.  Device thread only.

    It has no mask for words, so rows of other lengths go through it apart.
    """

    @property
    def other_blocks(self) -> Sequence[Any]:
        """All blocks: which rows are in a pass is not known to them."""
        return [*self._model.text_transformer_blocks, *self._model.visual_transformer_blocks]

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[EncodedPrompt]
    ) -> Tensor:
        """See `Denoiser.predict`; latents (rows, channels, t, height, width).

        The model takes 1000 sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in Kandinsky5T2VPipeline).
        """
        output = torch.empty_like(latents)
        groups: dict[int, list[int]] = {}
        for row, prompt in enumerate(conditioning):
            groups.setdefault(len(prompt.features), []).append(row)
        for rows in groups.values():
            index = torch.tensor(rows, device=latents.device)
            some = [conditioning[row] for row in rows]
            output[index] = self._predicted(latents[index], sigmas[index], some)
        return output

    def _predicted(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[EncodedPrompt]
    ) -> Tensor:
        """The same for rows with as many words."""
        dtype, device = self._model.dtype, latents.device
        features = torch.stack([prompt.features for prompt in conditioning])  # (rows, tokens, w)
        pooled = torch.stack([_pooled(prompt) for prompt in conditioning])  # (rows, width)
        video = latents.permute(0, 2, 3, 4, 1)  # (rows, t, h, w, c)
        frames, *sides = video.shape[1:4]
        if self._model.visual_cond:
            # Neither a frame that is given nor a mask that says so.
            beside = video.new_zeros((*video.shape[:-1], video.shape[-1] + 1))
            video = torch.cat([video, beside], dim=-1)  # (rows, t, h, w, 2 c + 1)
        trained = all(_TRAINED[0] <= side * _FACTOR <= _TRAINED[1] for side in sides)
        velocity: Tensor = self._model(
            hidden_states=video.to(dtype),
            encoder_hidden_states=features.to(dtype),
            timestep=(sigmas * _TIME).to(dtype),
            pooled_projections=pooled.to(dtype),
            visual_rope_pos=[
                torch.arange(size, device=device)
                for size in (frames, *(side // _PATCH for side in sides))
            ],
            text_rope_pos=torch.arange(features.shape[1], device=device),
            scale_factor=_SCALES[0] if trained else _SCALES[1],
            return_dict=False,
        )  # (rows, t, h, w, c)
        return latents - sigmas.view(-1, 1, 1, 1, 1) * velocity.float().permute(0, 4, 1, 2, 3)


def _pooled(prompt: EncodedPrompt) -> Tensor:
    assert prompt.pooled is not None
    return prompt.pooled
