"""The forward pass of FLUX.1 as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import torch

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.flux1.control import USUAL_GUIDANCE, block_samples
from inline_core.families.patches import patched, unpatched

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoded_prompt import EncodedPrompt

# Of a model with a guidance input that is not told one, by what goes into it; from the pipelines.
_GUIDANCE: Final = MappingProxyType({64: 3.5, 128: 10.0, 384: 30.0})
_AXES: Final = 3


class Flux1Denoiser(NetworkDenoiser):
    """A loaded FluxTransformer2DModel.  Device thread only."""

    two_streams = True

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        config = model.config
        # Those of Fill, Depth and Canny take their picture as channels, Kontext as tokens.
        self._takes_channels = config.in_channels > (config.out_channels or config.in_channels)

    @property
    def blocks(self) -> Sequence[Any]:
        """The blocks in order, which all take and give text and picture."""
        return [*self._model.transformer_blocks, *self._model.single_transformer_blocks]

    def predict(
        self,
        latents: Tensor,
        sigmas: Tensor,
        conditioning: Sequence[EncodedPrompt],
        guidance: Sequence[float | None] = (),
    ) -> Tensor:
        """See `GuidedDenoiser.predict`.

        The model takes sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in FluxPipeline).
        """
        dtype, device = self._model.dtype, latents.device
        height, width = latents.shape[-2] // 2, latents.shape[-1] // 2
        text = torch.stack([prompt.features for prompt in conditioning])  # (rows, tokens, features)
        pooled = torch.stack([_pooled(prompt) for prompt in conditioning])  # (rows, width)
        pictures, shown = [latents], _beside(conditioning)
        if self._takes_channels:
            pictures = [torch.cat([latents, *shown], dim=1)]  # (rows, channels, h, w)
        else:
            pictures += shown
        places = [_places(index, picture, device) for index, picture in enumerate(pictures)]
        inputs = {
            "encoder_hidden_states": text.to(dtype),
            "pooled_projections": pooled.to(dtype),
            "img_ids": torch.cat(places),
            "txt_ids": torch.zeros((text.shape[1], _AXES), device=device),
            "guidance": self._guidance(guidance, sigmas),
        }
        output = self._model(
            hidden_states=torch.cat([patched(picture) for picture in pictures], dim=1).to(dtype),
            timestep=sigmas,
            **inputs,
            **block_samples(self._model, conditioning, sigmas, patched(latents).to(dtype), inputs),
            return_dict=False,
        )[0][:, : height * width]  # (rows, places, 4 * channels)
        velocity = unpatched(output.float(), height, width)  # (rows, channels, h, w)
        return latents - sigmas.view(-1, 1, 1, 1) * velocity

    def _guidance(self, guidance: Sequence[float | None], sigmas: Tensor) -> Tensor | None:
        if not self._model.config.guidance_embeds:
            return None
        usual = _GUIDANCE.get(self._model.config.in_channels, USUAL_GUIDANCE)
        wanted = guidance or [None] * sigmas.shape[0]
        scales = [usual if scale is None else scale for scale in wanted]
        return torch.tensor(scales, dtype=torch.float32, device=sigmas.device)  # (rows,)


def _pooled(prompt: EncodedPrompt) -> Tensor:
    assert prompt.pooled is not None
    return prompt.pooled


def _beside(conditioning: Sequence[EncodedPrompt]) -> list[Tensor]:
    """Pictures and masks that go in with the latents, each (rows, channels, h, w)."""
    rows = []
    for prompt in conditioning:
        fills = getattr(prompt, "fills", None)
        shown = [*getattr(prompt, "references", ())]
        rows.append(shown if fills is None else [*shown, fills])
    return [torch.cat(pictures) for pictures in zip(*rows, strict=True)]


def _places(index: int, picture: Tensor, device: torch.device) -> Tensor:
    """(which picture, row, column) of each token; picture 0 is the one that is made."""
    height, width = picture.shape[-2] // 2, picture.shape[-1] // 2
    which = torch.tensor([index], device=device)
    axes = [torch.arange(size, device=device) for size in (height, width)]
    return torch.cartesian_prod(which, *axes).float()  # (places, 3)
