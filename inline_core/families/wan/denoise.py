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
_PLACES: Final = 257  # of CLIP's ViT-H: what it sees of nothing is zeros
_BOTH: Final = 2


class WanDenoiser(NetworkDenoiser):
    """A loaded WanTransformer3DModel.  Device thread only."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        config = model.config
        # Beside the noise: latents of given frames, before them marks of which frames these are,
        # and for Fun those of a video to go by before both.  The 5B model has frames in its place.
        channels = config.out_channels
        self._beside, self._marks = divmod(config.in_channels - channels, channels)
        self._sees = config.image_dim
        self._refers = bool(getattr(config, "ref_channels", 0))
        self._moves = bool(getattr(config, "camera_channels", 0))
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
            rows = [self._given(*row) for row in zip(conditioning, latents, strict=True)]
            inputs = torch.cat([latents, torch.stack(rows)], 1)  # (rows, in_channels, t, h, w)
            parts = self._parts_of_fun(latents, conditioning)
            velocity = self._run(inputs, sigmas * _TIMES, conditioning, **parts)
            return latents - scale * velocity
        if all(one is None for one in frames):
            velocity = self._run(latents, sigmas * _TIMES, conditioning)
            return latents - scale * velocity
        return self._in_place(latents, sigmas, conditioning)

    def _given(self, prompt: WanPrompt, noise: Tensor) -> Tensor:
        """What stands beside the noise (c, t, h, w) of a row; zeros for what it is not given."""
        nothing = torch.zeros_like(noise)  # (c, t, h, w)
        parts = [nothing if prompt.control is None else prompt.control] * (self._beside == _BOTH)
        if self._marks:
            parts.append(nothing[: self._marks] if prompt.marks is None else prompt.marks)
        parts.append(nothing if prompt.frames is None else prompt.frames)
        return torch.cat(parts)  # (in_channels - c, t, h, w)

    def _parts_of_fun(
        self, latents: Tensor, conditioning: Sequence[WanPrompt]
    ) -> dict[str, Tensor]:
        """What only Fun takes: a reference picture (zeros for none), where the camera is."""
        parts: dict[str, Tensor] = {}
        if self._refers:
            nothing = torch.zeros_like(latents[0, :, 0])  # (c, h, w)
            shown = [nothing if one.subject is None else one.subject for one in conditioning]
            parts["subject"] = torch.stack(shown).to(self._dtype)  # (rows, c, h, w)
        if self._moves:
            parts["cameras"] = _stacked([one.cameras for one in conditioning])  # (rows, frames, 16)
        return parts

    @property
    def _dtype(self) -> torch.dtype:
        found: torch.dtype = self._model.patch_embedding.weight.dtype
        return found

    def _controlled(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[WanPrompt]
    ) -> Tensor:
        """VACE: as from text, with what it is shown; rows of one strength share a pass."""
        made = torch.empty_like(latents)  # (rows, c, t, h, w)
        for strength in dict.fromkeys(prompt.control_strength for prompt in conditioning):
            rows = [row for row, one in enumerate(conditioning) if one.control_strength == strength]
            prompts = [conditioning[row] for row in rows]
            control = _stacked([prompt.control for prompt in prompts])  # (rows, 96, t, h, w)
            dtype = self._dtype
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
        dtype = self._dtype
        seen = [prompt.seen for prompt in conditioning]
        if self._sees:
            nothing = inputs.new_zeros((_PLACES, self._sees))  # (places, width)
            seen = [nothing if one is None else one for one in seen]
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
