"""The forward pass of LongCat-Image as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.patches import patched, unpatched

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt

_PATCH: Final = 2
# The first of the three numbers that say where a token stands; the words have 0.
_MADE: Final = 1
_LOOKED_AT: Final = 2


class LongCatImageDenoiser(NetworkDenoiser):
    """A loaded LongCatImageTransformer2DModel.  Device thread only.

    Pictures stand behind the words, so rows whose words have other lengths (as they show the text
    encoder pictures of other sizes) go through the network apart.
    """

    @property
    def other_blocks(self) -> Sequence[Any]:
        """All blocks: which rows are in a pass is not known to them."""
        return [*self._model.transformer_blocks, *self._model.single_transformer_blocks]

    def predict(
        self,
        latents: Tensor,
        sigmas: Tensor,
        conditioning: Sequence[EncodedPrompt],
        guidance: Sequence[float | None] = (),
    ) -> Tensor:
        """See `Denoiser.predict`; a guidance as an input is left out, as the model has none.

        The model takes sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in LongCatImagePipeline).
        """
        del guidance
        output = torch.empty_like(latents)
        groups: dict[Any, list[int]] = {}
        for row, prompt in enumerate(conditioning):
            sizes = tuple(picture.shape for picture in getattr(prompt, "references", ()))
            groups.setdefault((len(prompt.features), sizes), []).append(row)
        for rows in groups.values():
            index = torch.tensor(rows, device=latents.device)
            some = [conditioning[row] for row in rows]
            output[index] = self._predicted(latents[index], sigmas[index], some)
        return output

    def _predicted(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[EncodedPrompt]
    ) -> Tensor:
        """The same for rows with as many words."""
        dtype = self._model.dtype
        features = torch.stack([prompt.features for prompt in conditioning])  # (rows, tokens, w)
        rows = [getattr(prompt, "references", ()) for prompt in conditioning]
        pictures = [latents, *(torch.cat(found) for found in zip(*rows, strict=True))]
        tokens = [patched(picture) for picture in pictures]  # each (rows, places, 64)
        words, own = features.shape[1], tokens[0].shape[1]
        kinds = [_MADE, *[_LOOKED_AT] * (len(pictures) - 1)]
        along = torch.arange(words, device=latents.device)  # (tokens,)
        places = [_places(kind, words, item) for kind, item in zip(kinds, pictures, strict=True)]
        output = self._model(
            hidden_states=torch.cat(tokens, dim=1).to(dtype),
            encoder_hidden_states=features.to(dtype),
            timestep=sigmas,
            img_ids=torch.cat(places),
            txt_ids=torch.stack([torch.zeros_like(along), along, along], dim=1),  # (tokens, 3)
            return_dict=False,
        )[0][:, :own]  # (rows, places, 64)
        height, width = (side // _PATCH for side in latents.shape[-2:])
        velocity = unpatched(output.float(), height, width)  # (rows, 16, h, w)
        return latents - sigmas.view(-1, 1, 1, 1) * velocity


def _places(kind: int, words: int, picture: Tensor) -> Tensor:
    """(what it is, row, column) of each token, counted on from the words."""
    sides = [torch.arange(side // _PATCH) + words for side in picture.shape[-2:]]
    grid = torch.cartesian_prod(torch.tensor([kind]), *sides)  # (places, 3)
    return grid.to(picture.device)
