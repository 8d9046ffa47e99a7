"""The forward pass of ACE-Step as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.encoded_prompt import padded

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.ace_step.text import AceStepPrompt


class AceStepDenoiser(NetworkDenoiser):
    """A loaded AceStepTransformer1DModel.  Device thread only."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._mask: Tensor | None = None
        for layer in model.layers:
            layer.register_forward_pre_hook(self._masked, with_kwargs=True)

    @property
    def blocks(self) -> Sequence[Any]:
        """The repeated blocks in order."""
        return list(self._model.layers)

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[AceStepPrompt]
    ) -> Tensor:
        """See `Denoiser.predict`; latents (rows, channels, frames).

        The model takes sigma as time, silence in place of a sound to change, and a mask that is 1
        where sound is made; it gives the velocity noise - clean, so clean = x - sigma * v (as in
        AceStepPipeline).
        """
        dtype = self._model.proj_in_conv.weight.dtype
        frames = latents.shape[-1]
        silence = torch.stack([_silence(prompt, frames) for prompt in conditioning])
        context = torch.cat([silence, torch.ones_like(silence)], dim=-1)  # (rows, frames, 2c)
        features, self._mask = joined(conditioning)
        times = sigmas.to(dtype)
        try:
            velocity: Tensor = self._model(
                hidden_states=latents.transpose(1, 2).to(dtype),
                timestep=times,
                timestep_r=times,
                encoder_hidden_states=features.to(dtype),
                context_latents=context.to(dtype),
                return_dict=False,
            )[0]  # (rows, frames, channels)
        finally:
            self._mask = None
        return latents - sigmas.view(-1, 1, 1) * velocity.float().transpose(1, 2)

    def _masked(
        self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Hide the padding of shorter prompts from a block; the model itself knows no mask."""
        if self._mask is None:
            return args, kwargs
        return args, {**kwargs, "encoder_attention_mask": self._mask}


def joined(prompts: Sequence[AceStepPrompt]) -> tuple[Tensor, Tensor | None]:
    """Features (rows, tokens, width), and a mask (rows, 1, 1, tokens) where lengths differ.

    A null prompt is repeated, which changes nothing: all that is attended to is the same.
    """
    features, mask = padded(prompts)  # (rows, tokens, width), (rows, tokens)
    for row, prompt in enumerate(prompts):
        if prompt.null:
            features[row] = prompt.features  # (1, width) to (tokens, width)
            mask[row] = True
    return features, None if bool(mask.all()) else mask[:, None, None, :]


def _silence(prompt: AceStepPrompt, frames: int) -> Tensor:
    """Latents of silence (frames, channels), from the start again where they are too short."""
    silence = prompt.silence
    assert silence is not None
    times = -(-frames // len(silence))
    return silence.repeat(times, 1)[:frames]
