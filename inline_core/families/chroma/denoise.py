"""The forward pass of Chroma as an estimate of the clean latents."""

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
# See `_attention`: exp(-200) is 0 in float32, and 200 squared is a float16.
_PADDING: Final = -200.0


class ChromaDenoiser(NetworkDenoiser):
    """A loaded ChromaTransformer2DModel.  Device thread only."""

    @property
    def blocks(self) -> Sequence[Any]:
        """The single-stream blocks in order: text and picture go through them as one."""
        return list(self._model.single_transformer_blocks)

    @property
    def other_blocks(self) -> Sequence[Any]:
        """The double-stream blocks before them, which give two streams."""
        return list(self._model.transformer_blocks)

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[EncodedPrompt]
    ) -> Tensor:
        """See `Denoiser.predict`.

        The model takes sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in ChromaPipeline).
        """
        dtype, device = self._model.dtype, latents.device
        height, width = latents.shape[-2] // 2, latents.shape[-1] // 2
        features, mask = padded(conditioning)  # (rows, tokens, width), (rows, tokens)
        axes = [torch.arange(size, device=device) for size in (1, height, width)]
        output = self._model(
            hidden_states=patched(latents).to(dtype),
            encoder_hidden_states=features.to(dtype),
            timestep=sigmas,
            img_ids=torch.cartesian_prod(*axes).float(),  # (places, 3)
            txt_ids=torch.zeros((features.shape[1], _AXES), device=device),
            attention_mask=_attention(mask, height * width, dtype),
            return_dict=False,
        )[0]  # (rows, places, 4 * channels)
        velocity = unpatched(output.float(), height, width)  # (rows, channels, h, w)
        return latents - sigmas.view(-1, 1, 1, 1) * velocity


def _attention(mask: Tensor, places: int, dtype: torch.dtype) -> Tensor | None:
    """What the model wants as a mask (rows, tokens + places), so that padding is not looked at.

    Its blocks multiply the values of two tokens and add the product to their attention: 1 between
    real tokens, which changes nothing, -200 from a real one to padding, which leaves it out, and
    much between two of padding, so that no row is empty.  ChromaPipeline gives 1 and 0, which
    weights padding down by e only; the model was trained with a mask that leaves it out.
    """
    if bool(mask.all()):
        return None
    text = mask.to(dtype).masked_fill(~mask, _PADDING)  # (rows, tokens)
    return torch.cat([text, text.new_ones((len(text), places))], dim=1)
