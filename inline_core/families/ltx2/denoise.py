"""The forward pass of LTX-2 as an estimate of the clean latents of video and sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.ltx2.family import FPS, SPACE

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.ltx2.text import LTX2Prompt

_TIMES: Final = 1000.0


class LTX2Denoiser(NetworkDenoiser):
    """A loaded LTX2VideoTransformer3DModel.  Device thread only."""

    @property
    def other_blocks(self) -> Sequence[Any]:
        """The repeated blocks, which give video and sound."""
        return list(self._model.transformer_blocks)

    def predict(
        self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[LTX2Prompt]
    ) -> Tensor:
        """See `Denoiser.predict`; latents (rows, values) as `SPACE` lays them out.

        The model takes 1000 sigma as time and gives the velocity noise - clean, so
        clean = x - sigma * v (as in LTX2Pipeline).  A frame that is given stands in for the noise,
        and its time is 0 (as in LTX2ImageToVideoPipeline).
        """
        made = torch.empty_like(latents)  # (rows, values)
        for rows in _alike(conditioning):
            prompts = [conditioning[row] for row in rows]
            made[rows] = self._predict(latents[rows], sigmas[rows], prompts)
        return made

    def _predict(self, latents: Tensor, sigmas: Tensor, prompts: Sequence[LTX2Prompt]) -> Tensor:
        """The estimate for rows that have the same sizes."""
        latent = prompts[0].latent
        assert latent is not None
        video, sound = SPACE.split(latents, latent)  # (rows, c, t, h, w), (rows, c, frames)
        places = video.shape[-2] * video.shape[-1]
        times = (sigmas * _TIMES)[:, None].expand(-1, video.shape[2])  # (rows, t)
        if prompts[0].frames is not None:
            clean = torch.stack([prompt.frames for prompt in prompts if prompt.frames is not None])
            given = torch.stack([prompt.given for prompt in prompts if prompt.given is not None])
            shown = given[:, None, :, None, None]  # (rows, 1, t, 1, 1)
            video = clean * shown + video * (1.0 - shown)  # (rows, c, t, h, w)
            times = times * (1.0 - given)  # (rows, t)
        times = times.repeat_interleave(places, dim=1)  # (rows, t * h * w)
        tokens = video.flatten(2).transpose(1, 2)  # (rows, t * h * w, c)
        sound = sound.transpose(1, 2)  # (rows, frames, c)
        share = times[..., None] / _TIMES  # (rows, t * h * w, 1)
        shown, times, coords = self._with_last(tokens, times, video, prompts)
        fps = latent.fps or FPS
        velocity, of_sound = self._run(
            shown, sound, times, sigmas * _TIMES, prompts, video, fps, coords
        )
        velocity = velocity[:, : tokens.shape[1]]  # (rows, t * h * w, c)
        clean_video = (tokens - share * velocity).transpose(1, 2).reshape(video.shape)
        clean_sound = sound - sigmas[:, None, None] * of_sound  # (rows, frames, c)
        return SPACE.joined(clean_video, clean_sound.transpose(1, 2))

    def _with_last(
        self, tokens: Tensor, times: Tensor, video: Tensor, prompts: Sequence[LTX2Prompt]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Tokens and their times with a picture that the video ends with, and their places.

        It is clean, so that its time is 0, or a share of the others' if it is held loosely.  It
        stands at the first frame of pixels that the last latent frame is of, for one frame
        (`_prepare_keyframe_coords` of LTX-2's blocks in diffusers for the index -1).
        """
        last = [prompt.last for prompt in prompts if prompt.last is not None]
        if not last:
            return tokens, times, None
        rows, _, count, height, width = video.shape
        latent = prompts[0].latent
        fps = (latent.fps if latent is not None else 0.0) or FPS
        rope, device = self._model.rope, tokens.device
        coords = rope.prepare_video_coords(rows, count, height, width, device, fps=fps)
        # Rows and columns of the picture are those of any frame, here of the first one.
        there = coords[:, :, : height * width].clone()  # (rows, 3, h * w, 2)
        index = max(count - 2, 0) * SPACE.frame_factor + (count > 1)
        start = torch.tensor([index, index + 1], device=device) / fps  # (2,)
        there[:, 0] = start.to(there)
        shown = torch.stack(last).to(tokens).flatten(2).transpose(1, 2)  # (rows, h * w, c)
        held = [prompt.last_strength for prompt in prompts]
        loose = 1.0 - torch.tensor(held, device=device)[:, None]  # (rows, 1)
        return (
            torch.cat([tokens, shown], dim=1),  # (rows, (t + 1) * h * w, c)
            torch.cat([times, loose * times.amax(1, keepdim=True).expand(-1, height * width)], 1),
            torch.cat([coords, there], dim=2),  # (rows, 3, (t + 1) * h * w, 2)
        )

    def _run(
        self,
        tokens: Tensor,
        sound: Tensor,
        times: Tensor,
        sigmas: Tensor,
        prompts: Sequence[LTX2Prompt],
        video: Tensor,
        fps: float,
        coords: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Velocities of all tokens (rows, n, c) and of the sound (rows, frames, c)."""
        dtype = self._model.proj_in.weight.dtype
        features = torch.stack([prompt.features for prompt in prompts]).to(dtype)
        heard = torch.stack([prompt.sound for prompt in prompts if prompt.sound is not None])
        mask = torch.ones(features.shape[:2], dtype=torch.long, device=features.device)
        found, of_sound = self._model(
            hidden_states=tokens.to(dtype),
            audio_hidden_states=sound.to(dtype),
            encoder_hidden_states=features,
            audio_encoder_hidden_states=heard.to(dtype),
            timestep=times,
            audio_timestep=sigmas,
            sigma=sigmas,
            encoder_attention_mask=mask,
            audio_encoder_attention_mask=mask,
            num_frames=video.shape[2],
            height=video.shape[3],
            width=video.shape[4],
            fps=fps,
            audio_num_frames=sound.shape[1],
            video_coords=coords,
            use_cross_timestep=True,
            return_dict=False,
        )
        return found.float(), of_sound.float()


def _alike(conditioning: Sequence[LTX2Prompt]) -> list[list[int]]:
    """Rows by the sizes of what they make, and by which frames are given."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for row, prompt in enumerate(conditioning):
        latent = prompt.latent
        assert latent is not None
        sizes = (latent.width, latent.height, latent.frames, latent.fps)
        given = (prompt.frames is None, prompt.last is None)
        groups.setdefault((*sizes, *given), []).append(row)
    return list(groups.values())
