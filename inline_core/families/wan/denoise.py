"""The forward pass of Wan as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.wan.text import padded_features

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.wan.text import WanPrompt

_TIMES: Final = 1000.0


class WanDenoiser(NetworkDenoiser):
    """A loaded WanTransformer3DModel.  Device thread only."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        config = model.config
        # Models from a picture get its latents beside the noise; the 5B model in place of it.
        self._beside = config.in_channels > config.out_channels
        # VACE: blocks that look at a controlling video, each beside one of the others.
        self._hints = len(getattr(config, "vace_layers", None) or ())

    @property
    def blocks(self) -> Sequence[Any]:
        """The repeated blocks in order."""
        return list(self._model.blocks)

    def predict(self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[WanPrompt]) -> Tensor:
        """See `Denoiser.predict`; latents (rows, channels, t, height, width).

        The model takes 1000 sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in WanPipeline and WanImageToVideoPipeline).
        """
        if self._hints:
            return self._controlled(latents, sigmas, conditioning)
        scale = sigmas.view(-1, 1, 1, 1, 1)
        frames = [prompt.frames for prompt in conditioning]
        if self._beside:
            marks = _stacked([prompt.marks for prompt in conditioning])  # (rows, 4, t, h, w)
            given = _stacked(frames)  # (rows, c, t, h, w)
            velocity = self._run(
                torch.cat([latents, marks, given], 1), sigmas * _TIMES, conditioning
            )
            return latents - scale * velocity
        if all(one is None for one in frames):
            velocity = self._run(latents, sigmas * _TIMES, conditioning)
            return latents - scale * velocity
        return self._in_place(latents, sigmas, conditioning)

    def _controlled(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[WanPrompt]
    ) -> Tensor:
        """VACE: as from text, with what it is shown; rows of one strength share a pass."""
        made = torch.empty_like(latents)  # (rows, c, t, h, w)
        for strength in dict.fromkeys(prompt.control_strength for prompt in conditioning):
            rows = [
                row for row, one in enumerate(conditioning) if one.control_strength == strength
            ]
            prompts = [conditioning[row] for row in rows]
            control = _stacked([prompt.control for prompt in prompts])  # (rows, 96, t, h, w)
            dtype = self._model.patch_embedding.weight.dtype
            velocity = self._run(
                latents[rows],
                sigmas[rows] * _TIMES,
                prompts,
                control_hidden_states=control.to(dtype),
                control_hidden_states_scale=control.new_full((self._hints,), strength, dtype=dtype),
            )
            made[rows] = latents[rows] - sigmas[rows].view(-1, 1, 1, 1, 1) * velocity
        return made

    def _in_place(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[WanPrompt]
    ) -> Tensor:
        """The 5B model: given frames stand in for the noise, and have a time of 0."""
        given = _stacked([prompt.given for prompt in conditioning])  # (rows, t, h, w)
        clean = _stacked([prompt.frames for prompt in conditioning])  # (rows, c, t, h, w)
        share = 1.0 - given[:, None]  # (rows, 1, t, h, w)
        inputs = clean * (1.0 - share) + latents * share  # (rows, c, t, h, w)
        times = share[:, 0, :, ::2, ::2] * (sigmas * _TIMES).view(-1, 1, 1, 1)  # (rows, t, h, w)
        velocity = self._run(inputs, times.flatten(1), conditioning)
        made = latents - sigmas.view(-1, 1, 1, 1, 1) * velocity
        return clean * (1.0 - share) + made * share

    def _run(
        self, inputs: Tensor, times: Tensor, conditioning: Sequence[WanPrompt], **more: Any
    ) -> Tensor:
        dtype = self._model.patch_embedding.weight.dtype
        seen = [prompt.seen for prompt in conditioning]
        output: Tensor = self._model(
            hidden_states=inputs.to(dtype),
            timestep=times,
            encoder_hidden_states=padded_features(conditioning).to(dtype),
            encoder_hidden_states_image=None if seen[0] is None else _stacked(seen).to(dtype),
            **more,
            return_dict=False,
        )[0]  # (rows, c, t, h, w)
        return output.float()


def _stacked(parts: Sequence[Tensor | None]) -> Tensor:
    """What all rows have, one after the other; rows of one pass have the same kinds of inputs."""
    return torch.stack([part for part in parts if part is not None])
