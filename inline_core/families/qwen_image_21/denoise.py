"""The forward pass of Qwen-Image 2.1 as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from inline_core.errors import InvalidParam
from inline_core.families.denoiser import NetworkDenoiser

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.qwen_image_21.text import Qwen21Prompt

_TOKENS_OF_SLOT: Final = 4


class QwenImage21Denoiser(NetworkDenoiser):
    """A loaded QwenImage21Transformer2DModel.  Device thread only.

    Words and pictures are one sequence that ends with what is made, and where that stands follows
    from how long the words are.  So rows of other lengths go through the network apart.
    """

    @property
    def other_blocks(self) -> Sequence[Any]:
        """All blocks: a row has two rows of modulation, so none may be left out or reused."""
        return list(self._model.transformer_blocks)

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[Qwen21Prompt]
    ) -> Tensor:
        """See `Denoiser.predict`; latents (rows, channels, height, width).

        The model takes sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in QwenImage21Pipeline).
        Raises: InvalidParam for pictures that only the text encoder was shown.
        """
        output = torch.empty_like(latents)
        for rows in _alike(conditioning):
            index = torch.tensor(rows, device=latents.device)
            some = [conditioning[row] for row in rows]
            output[index] = self._predicted(latents[index], sigmas[index], some)
        return output

    def _predicted(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[Qwen21Prompt]
    ) -> Tensor:
        """The same for rows whose prompts have one layout."""
        dtype = self._model.dtype
        pictures = [*_references(conditioning), latents]  # each (rows, channels, h, w)
        tokens = [item.flatten(2).transpose(1, 2) for item in pictures]  # each (rows, places, c)
        own = tokens[-1].shape[1]
        slots = torch.stack([_slots(prompt) for prompt in conditioning])  # (rows, tokens)
        made = slots.new_ones((len(slots), own // _TOKENS_OF_SLOT))  # (rows, places / 4)
        output = self._model(
            hidden_states=torch.cat(tokens, dim=1).to(dtype),
            encoder_hidden_states=torch.stack([p.features for p in conditioning]).to(dtype),
            timestep=sigmas,
            img_shapes=[[(1, *item.shape[-2:]) for item in pictures]] * len(latents),
            img_mask=torch.cat([slots, made], dim=1),
            return_dict=False,
        )[0][:, -own:]  # (rows, places, c)
        velocity: Tensor = output.float().transpose(1, 2).reshape(latents.shape)  # (rows, c, h, w)
        return latents - sigmas.view(-1, 1, 1, 1) * velocity


def _slots(prompt: Qwen21Prompt) -> Tensor:
    """Where pictures are in a prompt, (tokens,) bool.  Raises: InvalidParam."""
    assert prompt.slots is not None
    if not prompt.references and bool(prompt.slots.any()):
        message = (
            "Qwen-Image 2.1 needs the pictures that its text encoder sees as references too: "
            "connect the VAE, or use the Reference Conditioning node"
        )
        raise InvalidParam(message, port="positive")
    return prompt.slots


def _references(conditioning: Sequence[Qwen21Prompt]) -> list[Tensor]:
    """The pictures that the rows look at, each (rows, channels, h, w)."""
    rows = [prompt.references for prompt in conditioning]
    return [torch.cat(pictures) for pictures in zip(*rows, strict=True)]


def _alike(conditioning: Sequence[Qwen21Prompt]) -> list[list[int]]:
    """Rows whose words and pictures stand at the same places."""
    groups: dict[Any, list[int]] = {}
    for row, prompt in enumerate(conditioning):
        sizes = tuple(picture.shape for picture in prompt.references)
        places = tuple(_slots(prompt).nonzero().flatten().tolist())
        groups.setdefault((len(prompt.features), places, sizes), []).append(row)
    return list(groups.values())
