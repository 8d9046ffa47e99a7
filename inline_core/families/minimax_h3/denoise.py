"""The forward pass of MiniMax H3 as an estimate of the clean latents of video and sound.

Video and sound have schedules of their own, sigma(t) = a t / (1 + (a - 1) t) with a = 12 and a = 3,
at the same t.  Noise over signal is then a t / (1 - t), so that of the sound always is a quarter of
the video's: sound that is four times as large is noised like the video.  So the sampler has one
schedule, and both go down theirs exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers.modular_pipelines.minimax_h3.before_denoise import (
    MiniMaxH3PrepareLayoutStep,
    MiniMaxH3Ref2VAPrepareLayoutStep,
    MiniMaxH3SetTimestepsStep,
    patchify_video_latents,
)
from diffusers.modular_pipelines.minimax_h3.modular_pipeline import MINIMAX_H3_AUDIO_TAG
from diffusers.modular_pipelines.minimax_h3.references import MiniMaxH3ImageReference
from diffusers.utils.torch_utils import maybe_adjust_dtype_for_device

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.minimax_h3.family import SHIFT, SOUND_SHIFT, SPACE, STEREO
from inline_core.families.minimax_h3.text import CLEAN, VIDEO_TAG

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.minimax_h3.text import H3Prompt

LOUDER: Final = SHIFT / SOUND_SHIFT


class H3Denoiser(NetworkDenoiser):
    """A loaded MiniMaxH3Transformer3DModel.  Device thread only."""

    @property
    def blocks(self) -> Sequence[Any]:
        """The repeated blocks in order."""
        return list(self._model.transformer_blocks)

    @property
    def other_blocks(self) -> Sequence[Any]:
        """The blocks that only see the words."""
        return list(self._model.token_refiner.refiner_blocks)

    def predict(self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[H3Prompt]) -> Tensor:
        """See `Denoiser.predict`; latents (rows, values) as `SPACE` lays them out.

        Words, keyframes, sound and video are one sequence without padding, so that rows go through
        the model one after the other.
        """
        made = [
            self._predict(latents[row : row + 1], float(sigmas[row]), prompt)
            for row, prompt in enumerate(conditioning)
        ]
        return torch.cat(made)

    def _predict(self, row: Tensor, sigma: float, prompt: H3Prompt) -> Tensor:
        """The estimate (1, values) for one video."""
        latent = prompt.latent
        assert latent is not None
        video, loud = SPACE.split(row, latent)  # (1, c, t, h, w), (1, stereo * c, frames)
        time = sigma / (SHIFT - (SHIFT - 1.0) * sigma)
        sound_sigma = SOUND_SHIFT * time / (1.0 + (SOUND_SHIFT - 1.0) * time)
        scale = (1.0 + (SHIFT - 1.0) * time) / (1.0 + (SOUND_SHIFT - 1.0) * time) / LOUDER
        frames = loud.shape[-1]
        # Rows of the sound: all of one channel, then all of the other.
        sound = (loud * scale).reshape(STEREO, -1, frames).permute(0, 2, 1).flatten(0, 1)
        velocity, of_sound = self._run(video, sound, (1.0 - sigma, 1.0 - sound_sigma), prompt)
        clean = video + sigma * velocity  # (1, c, t, h, w)
        clean_sound = sound + sound_sigma * of_sound  # (stereo * frames, c)
        back = clean_sound.reshape(STEREO, frames, -1).permute(0, 2, 1).reshape(loud.shape)
        return SPACE.joined(clean, back * LOUDER)

    def _run(
        self, video: Tensor, sound: Tensor, times: tuple[float, float], prompt: H3Prompt
    ) -> tuple[Tensor, Tensor]:
        """Velocities (towards clean) of the video (1, c, t, h, w) and the sound (rows, c)."""
        config, device = self._model.config, video.device
        patch = tuple(config.patch_size)
        _, channels, count, height, width = video.shape
        assert prompt.tags is not None
        sizes = (count, height, width, len(sound) // STEREO, patch, STEREO)
        positions, tags, of_video, of_sound, of_text, kept = _layout(prompt, sizes)
        distinct, indices = MiniMaxH3SetTimestepsStep.build_row_timesteps(
            of_video, of_sound, kept, 0, len(prompt.tags), *times, max(times[0], CLEAN), 1.0
        )
        rows = [patchify_video_latents(part[None].to(device), patch) for part in prompt.keyframes]
        rows.append(patchify_video_latents(video, patch))
        found, heard = self._model(
            hidden_states=torch.cat(rows)[None],
            audio_hidden_states=sound[None],
            encoder_hidden_states=prompt.features[None],
            timestep=distinct.to(device),
            timestep_indices=indices.to(device),
            token_tags=tags.to(device),
            position_ids=positions.to(
                device, maybe_adjust_dtype_for_device(positions.dtype, device)
            ),
            video_indices=of_video.to(device),
            audio_indices=of_sound.to(device),
            text_indices=of_text.to(device),
            return_dict=False,
        )
        made = (
            found[0, kept:]
            .float()
            .reshape(1, count // patch[0], height // patch[1], width // patch[2], channels, *patch)
        )
        moved = made.permute(0, 4, 1, 5, 2, 6, 3, 7).reshape(video.shape)  # (1, c, t, h, w)
        return moved, heard[0].float()


def _layout(prompt: H3Prompt, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Positions, tags and places of the rows of a sequence, and how many are not made anew.

    `sizes` are those of the latents, the patches and the channels of the sound.
    """
    tags = (MINIMAX_H3_AUDIO_TAG, VIDEO_TAG)
    if prompt.keyframes and not prompt.anchors:
        looked_at = [part[None] for part in prompt.keyframes]
        pictures = [MiniMaxH3ImageReference(part) for part in looked_at]
        build = MiniMaxH3Ref2VAPrepareLayoutStep.build_ref2va_packed_sequence
        found = build(prompt.tags, pictures, looked_at, [], *sizes, *tags)
    else:
        layout = MiniMaxH3PrepareLayoutStep.build_packed_sequence
        found = layout(prompt.tags, *sizes, *tags, prompt.anchors)
    return tuple(found[:-1])
