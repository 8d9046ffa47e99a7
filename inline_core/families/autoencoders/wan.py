"""AutoencoderKLWan: videos (Wan 2.1 and 2.2) and pictures (Qwen-Image, Krea 2) to latents and back.

A picture is a video of one frame.  Imports torch and diffusers, so it is imported on the device
thread only.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from diffusers import AutoencoderKLWan

from inline_core.errors import ModelFileInvalid, NotFinite
from inline_core.families.autoencoders.kl import unit_pixels
from inline_core.families.autoencoders.wan_keys import wan_vae_sources
from inline_core.families.autoencoders.wan_spaces import STATISTICS
from inline_core.families.transformer import place_buffers
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, fill

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.sampling.family import LatentSpace

_PICTURE: Final = 3  # axes of a picture's array; a video has one more
_VIDEOS: Final = 5  # axes of the latents of videos


class WanVaeRuntime:
    """A loaded AutoencoderKLWan with the statistics of its channels.  Any of the device's threads.

    The network keeps what it saw of earlier frames, so that one thread uses it at a time.
    """

    def __init__(self, model: Any, space: LatentSpace) -> None:
        self._model = model
        self._lock = threading.Lock()
        self.space = space
        self.scale = (space.scaling, space.shift)
        self.interruption = Interruption(_blocks(model))
        shape = (1, -1, 1, 1, 1)
        self._mean = torch.tensor(model.config.latents_mean, device=model.device).view(shape)
        self._deviation = torch.tensor(model.config.latents_std, device=model.device).view(shape)

    def in_space(self, _: LatentSpace | None) -> WanVaeRuntime:
        """The same: its statistics belong to it."""
        return self

    def decode_raw(self, latents: Tensor, *, tiled: bool = False) -> Tensor:
        """Normalised latents (n, c, t, h, w) -> pixels (n, 3, frames, H, W) float32 in -1..1.

        Those of pictures may come without the axis of time.
        """
        if latents.ndim < _VIDEOS:
            latents = latents.unsqueeze(2)  # (n, c, 1, h, w)
        placed = latents.to(self._model.device, torch.float32)
        raw = (placed * self._deviation + self._mean).to(self._model.dtype)  # (n, c, t, h, w)
        with self._lock:
            self._model.use_tiling = tiled
            try:
                pixels: Tensor = self._model.decode(raw, return_dict=False)[0]
            finally:
                self._model.use_tiling = False
        return pixels.float()  # (n, 3, frames, H, W)

    def decode(self, latents: Tensor, *, tiled: bool = False) -> NDArray[np.uint8]:
        """Normalised latents (1, c, t, h, w) -> uint8 (frames, H, W, 3), a picture (H, W, 3).

        Raises: NotFinite.
        """
        pixels = self.decode_raw(latents, tiled=tiled)[0]  # (3, frames, H, W)
        if not bool(torch.isfinite(pixels).all()):
            message = "NaN or infinity in the decoded pixels: no picture was made"
            raise NotFinite(message)
        frames = [frame_pixels(frame) for frame in pixels.unbind(1)]  # frames x (H, W, 3)
        return frames[0] if len(frames) == 1 else np.stack(frames)

    def encode(self, pixels: NDArray[Any], *, tiled: bool = False) -> Tensor:
        """(H, W, 3) or (frames, H, W, 3), uint8 or float32 in 0..1 -> normalised (1, c, t, h, w).

        The mode of the encoded distribution, without noise.
        """
        frames = pixels[None] if pixels.ndim == _PICTURE else pixels
        video = unit_pixels(frames).permute(3, 0, 1, 2)[None] * 2 - 1  # (1, 3, frames, H, W)
        inputs = video.to(self._model.device, self._model.dtype)
        with self._lock:
            self._model.use_tiling = tiled
            try:
                raw: Tensor = self._model.encode(inputs).latent_dist.mode()  # (1, c, t, h, w)
            finally:
                self._model.use_tiling = False
        return ((raw.float() - self._mean) / self._deviation).cpu()


def load_vae(plan: LoadPlan, space: LatentSpace) -> WanVaeRuntime:
    """The VAE, ready to decode and encode.  Raises: ModelFileInvalid, RunCancelled."""
    config = dict(plan.identity.config)
    mean, deviation = STATISTICS.get(config["z_dim"], (None, None))
    told = {
        key: plan.files.config.get(key) or usual
        for key, usual in (("latents_mean", mean), ("latents_std", deviation))
    }
    if any(value is None or len(value) != config["z_dim"] for value in told.values()):
        message = (
            f"{plan.label} has {config['z_dim']} latent channels, and how they are normalised is "
            "not known: use the folder of the VAE with its config.json"
        )
        raise ModelFileInvalid(message)
    with torch.device("meta"):
        model: Any = AutoencoderKLWan(**config, **told)
    place_buffers(model, plan.placement.storage)
    fill(model, wan_vae_sources(plan.logical.tensors, plan.identity.prefix), plan)
    return WanVaeRuntime(model.eval(), space)


def frame_pixels(frame: Tensor) -> NDArray[np.uint8]:
    """One frame (3, H, W) in -1..1 -> uint8 (H, W, 3)."""
    unit = (frame * 0.5 + 0.5).clamp(0, 1).permute(1, 2, 0)  # (H, W, 3)
    array: NDArray[np.uint8] = (unit.cpu().numpy() * 255).round().astype(np.uint8)
    return array


def _blocks(model: Any) -> list[Any]:
    """The stages of both halves."""
    halves = (model.encoder.down_blocks, model.decoder.up_blocks)
    stages = [stage for half in halves for stage in half]
    return [*stages, model.encoder.mid_block, model.decoder.mid_block]
