"""The forward pass of FLUX.2 as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from inline_core.families.denoiser import NetworkDenoiser

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt

# Of a model with a guidance input that is not told one, as Flux2Pipeline has it.
USUAL_GUIDANCE: Final = 4.0
_TIME_APART: Final = 10


class Flux2Denoiser(NetworkDenoiser):
    """A loaded Flux2Transformer2DModel.  Device thread only."""

    @property
    def blocks(self) -> Sequence[Any]:
        """The single-stream blocks in order: text and picture go through them as one."""
        return list(self._model.single_transformer_blocks)

    @property
    def other_blocks(self) -> Sequence[Any]:
        """The double-stream blocks before them, which give two streams."""
        return list(self._model.transformer_blocks)

    def predict(
        self,
        latents: Tensor,
        sigmas: Tensor,
        conditioning: Sequence[EncodedPrompt],
        guidance: Sequence[float | None] = (),
    ) -> Tensor:
        """See `GuidedDenoiser.predict`.

        The model takes sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in Flux2KleinPipeline).
        """
        rows, channels, height, width = latents.shape
        dtype = self._model.dtype
        text = torch.stack([prompt.features for prompt in conditioning])  # (rows, tokens, features)
        pictures = [latents, *_references(conditioning)]  # each (rows, channels, h, w)
        places = [
            _picture_places(index, picture.shape[-2], picture.shape[-1], latents.device)
            for index, picture in enumerate(pictures)
        ]
        tokens = [_tokens(picture).to(dtype) for picture in pictures]
        more: dict[str, Any] = {}
        if len(pictures) > 1 and getattr(conditioning[0], "apart", False):
            # As in the first step of Flux2KleinKVPipeline, which has the references first and gives
            # the picture only.  It keeps what it computed of them for the others, where that would
            # be the same: here each step, whose rows may change, computes it.
            tokens, places = [*tokens[1:], tokens[0]], [*places[1:], places[0]]
            count = sum(item.shape[1] for item in tokens[:-1])
            more = {"kv_cache_mode": "extract", "num_ref_tokens": count}
        output = self._model(
            hidden_states=torch.cat(tokens, dim=1),
            encoder_hidden_states=text.to(dtype),
            timestep=sigmas,
            img_ids=torch.cat(places),
            txt_ids=_text_places(text.shape[1], latents.device),
            guidance=self._guidance(guidance, sigmas),
            **more,
            return_dict=False,
        )[0][:, : height * width]  # (rows, places, channels)
        velocity: Tensor = output.float().transpose(1, 2).reshape(rows, channels, height, width)
        return latents - sigmas.view(-1, 1, 1, 1) * velocity

    def _guidance(self, guidance: Sequence[float | None], sigmas: Tensor) -> Tensor | None:
        if not self._model.config.guidance_embeds:
            return None
        wanted = guidance or [None] * sigmas.shape[0]
        scales = [USUAL_GUIDANCE if scale is None else scale for scale in wanted]
        return torch.tensor(scales, dtype=torch.float32, device=sigmas.device)  # (rows,)


def _references(conditioning: Sequence[EncodedPrompt]) -> list[Tensor]:
    """The pictures that the rows look at, each (rows, channels, h, w); all rows have the same."""
    rows = [getattr(prompt, "references", ()) for prompt in conditioning]
    return [torch.cat(pictures) for pictures in zip(*rows, strict=True)]


def _tokens(picture: Tensor) -> Tensor:
    """(rows, channels, h, w) -> (rows, places, channels)."""
    return picture.flatten(2).transpose(1, 2)


def _picture_places(index: int, height: int, width: int, device: torch.device) -> Tensor:
    """(time, row, column, place in the text) of each token; references come at times of their own.

    Picture 0 is the one that is made.
    """
    time = torch.tensor([_TIME_APART * index], device=device)
    axes = [torch.arange(size, device=device) for size in (height, width, 1)]
    return torch.cartesian_prod(time, *axes)  # (places, 4)


def _text_places(tokens: int, device: torch.device) -> Tensor:
    """The same of each token of the text."""
    axes = [torch.arange(size, device=device) for size in (1, 1, 1, tokens)]
    return torch.cartesian_prod(*axes)  # (tokens, 4)
