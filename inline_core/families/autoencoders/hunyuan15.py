"""AutoencoderKLHunyuanVideo15: videos of HunyuanVideo 1.5 to latents and back.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from diffusers import AutoencoderKLHunyuanVideo15

from inline_core.errors import NotFinite
from inline_core.families.autoencoders.hunyuan15_keys import hunyuan15_vae_sources
from inline_core.families.autoencoders.hunyuan15_spaces import tile_side
from inline_core.families.autoencoders.kl import unit_pixels
from inline_core.families.autoencoders.wan import frame_pixels
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, fill

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.sampling.family import LatentSpace

_PICTURE: Final = 3  # axes of a picture's array; a video has one more
_VIDEOS: Final = 5  # axes of the latents of videos
_SCALING: Final = "scaling_factor"


class HunyuanVae15Runtime:
    """A loaded AutoencoderKLHunyuanVideo15.  Any of the device's threads.

    Whether it works in tiles is kept in the network, so that one thread uses it at a time.
    """

    def __init__(self, model: Any, space: LatentSpace) -> None:
        self._model = model
        self._lock = threading.Lock()
        self.space = space
        self._scaling = float(model.config.scaling_factor)
        self.scale = (self._scaling, space.shift)
        self.interruption = Interruption(_stages(model))

    def in_space(self, _: LatentSpace | None) -> HunyuanVae15Runtime:
        """The same: its scaling belongs to it."""
        return self

    def decode_raw(self, latents: Tensor, *, tiled: bool = False) -> Tensor:
        """Normalised latents (n, c, t, h, w) -> pixels (n, 3, frames, H, W) float32 in -1..1.

        Those of pictures may come without the axis of time.
        """
        if latents.ndim < _VIDEOS:
            latents = latents.unsqueeze(2)  # (n, c, 1, h, w)
        placed = latents.to(self._model.device, torch.float32)
        raw = (placed / self._scaling).to(self._model.dtype)  # (n, c, t, h, w)
        frames = (raw.shape[2] - 1) * self._model.temporal_compression_ratio + 1
        with self._lock, _tiling(self._model, frames, tiled=tiled):
            pixels: Tensor = self._model.decode(raw, return_dict=False)[0]
        return pixels.float()  # (n, 3, frames, H, W)

    def decode(self, latents: Tensor, *, tiled: bool = False) -> NDArray[np.uint8]:
        """Normalised latents (1, c, t, h, w) -> uint8 (frames, H, W, 3), a picture (H, W, 3).

        Raises: NotFinite.
        """
        pixels = self.decode_raw(latents, tiled=tiled)[0]  # (3, frames, H, W)
        if not bool(torch.isfinite(pixels).all()):
            message = "NaN or infinity in the decoded pixels: no video was made"
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
        with self._lock, _tiling(self._model, len(frames), tiled=tiled):
            raw: Tensor = self._model.encode(inputs).latent_dist.mode()  # (1, c, t, h, w)
        return (raw.float() * self._scaling).cpu()


def load_vae(plan: LoadPlan, space: LatentSpace) -> HunyuanVae15Runtime:
    """The VAE, ready to decode and encode.  Raises: ModelFileInvalid, RunCancelled."""
    scaling = plan.files.config.get(_SCALING) or space.scaling
    with torch.device("meta"):
        model: Any = AutoencoderKLHunyuanVideo15(
            **plan.identity.config, scaling_factor=float(scaling)
        )
    fill(model, hunyuan15_vae_sources(plan.logical.tensors, plan.identity.prefix), plan)
    return HunyuanVae15Runtime(model.eval(), space)


@contextmanager
def _tiling(model: Any, frames: int, *, tiled: bool) -> Iterator[None]:
    """Let a VAE work in tiles that fit the length of a video for a while."""
    side = tile_side(frames)
    model.tile_sample_min_height = model.tile_sample_min_width = side
    inner = side // model.spatial_compression_ratio
    model.tile_latent_min_height = model.tile_latent_min_width = inner
    model.use_tiling = tiled
    try:
        yield
    finally:
        model.use_tiling = False


def _stages(model: Any) -> list[Any]:
    """The stages of both halves."""
    halves = (model.encoder.down_blocks, model.decoder.up_blocks)
    stages = [stage for half in halves for stage in half]
    return [*stages, model.encoder.mid_block, model.decoder.mid_block]
