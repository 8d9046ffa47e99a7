"""What the VAEs of videos share: statistics, one thread at a time, tiles, pixels and latents.

Imports torch, so it is imported on the device thread only.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import torch

from inline_core.errors import NotFinite
from inline_core.families.autoencoders.kl import unit_pixels

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.loading.interruption import Interruption
    from inline_core.sampling.family import LatentSpace

_PICTURE: Final = 3  # axes of a picture's array; a video has one more
_VIDEOS: Final = 5  # axes of the latents of videos


class VideoVae(ABC):
    """A loaded VAE of videos.  Any of the device's threads.

    Subclasses say how latents are normalised; that belongs to the VAE, whatever space is named.
    What the network keeps between frames, and whether it works in tiles, lies in it, so that one
    thread uses it at a time.
    """

    def __init__(self, model: Any, space: LatentSpace, interruption: Interruption) -> None:
        self._model = model
        self._lock = threading.Lock()
        self.space = space
        self.scale = (space.scaling, space.shift)
        self.interruption = interruption

    def in_space(self, _: LatentSpace | None) -> Self:
        """The same: its statistics belong to it."""
        return self

    @abstractmethod
    def raw(self, latents: Tensor) -> Tensor:
        """What the network decodes, from normalised latents (n, c, t, h, w) in float32."""

    @abstractmethod
    def normalised(self, raw: Tensor) -> Tensor:
        """Normalised latents, from what the network encoded (n, c, t, h, w) in float32."""

    @contextmanager
    def tiling(self, frames: int, *, tiled: bool) -> Iterator[None]:
        """Let the network work in tiles for a while; `frames` are those of the video."""
        del frames
        self._model.use_tiling = tiled
        try:
            yield
        finally:
            self._model.use_tiling = False

    def run(self, raw: Tensor) -> Tensor:
        """The network's pixels (n, 3, frames, H, W) of raw latents."""
        pixels: Tensor = self._model.decode(raw, return_dict=False)[0]
        return pixels

    def decode_raw(self, latents: Tensor, *, tiled: bool = False) -> Tensor:
        """Normalised latents (n, c, t, h, w) -> pixels (n, 3, frames, H, W) float32 in -1..1.

        Those of pictures may come without the axis of time.
        """
        if latents.ndim < _VIDEOS:
            latents = latents.unsqueeze(2)  # (n, c, 1, h, w)
        placed = latents.to(self._model.device, torch.float32)
        raw = self.raw(placed).to(self._model.dtype)  # (n, c, t, h, w)
        frames = (raw.shape[2] - 1) * (self.space.frame_factor or 1) + 1
        with self._lock, self.tiling(frames, tiled=tiled):
            return self.run(raw).float()  # (n, 3, frames, H, W)

    def decode(self, latents: Tensor, *, tiled: bool = False) -> NDArray[np.uint8]:
        """Normalised latents (1, c, t, h, w) -> uint8 (frames, H, W, 3), a picture (H, W, 3).

        Raises: NotFinite.
        """
        pixels = self.decode_raw(latents, tiled=tiled)[0]  # (3, frames, H, W)
        frames = pixels_of(pixels)
        return frames[0] if len(frames) == 1 else np.stack(frames)

    def encode(self, pixels: NDArray[Any], *, tiled: bool = False) -> Tensor:
        """(H, W, 3) or (frames, H, W, 3), uint8 or float32 in 0..1 -> normalised (1, c, t, h, w).

        The mode of the encoded distribution, without noise.
        """
        frames = pixels[None] if pixels.ndim == _PICTURE else pixels
        video = unit_pixels(frames).permute(3, 0, 1, 2)[None] * 2 - 1  # (1, 3, frames, H, W)
        inputs = video.to(self._model.device, self._model.dtype)
        with self._lock, self.tiling(len(frames), tiled=tiled):
            raw: Tensor = self._model.encode(inputs).latent_dist.mode()  # (1, c, t, h, w)
        return self.normalised(raw.float()).cpu()


class ScaledVideoVae(VideoVae):
    """A VAE of videos whose channels have a mean and a deviation each, (1, c, 1, 1, 1)."""

    def __init__(
        self,
        model: Any,
        space: LatentSpace,
        interruption: Interruption,
        statistics: tuple[Tensor, Tensor],
    ) -> None:
        super().__init__(model, space, interruption)
        self._mean, self._deviation = statistics

    def raw(self, latents: Tensor) -> Tensor:
        """What the network decodes, from normalised latents (n, c, t, h, w) in float32."""
        return latents * self._deviation + self._mean

    def normalised(self, raw: Tensor) -> Tensor:
        """Normalised latents, from what the network encoded (n, c, t, h, w) in float32."""
        return (raw - self._mean) / self._deviation


def by_channel(values: Tensor | Iterable[float], device: Any) -> Tensor:
    """Statistics of channels, as latents of videos are multiplied with them: (1, c, 1, 1, 1)."""
    if not isinstance(values, torch.Tensor):
        values = torch.tensor(list(values))  # (c,)
    return values.float().to(device).view(1, -1, 1, 1, 1)


def pixels_of(video: Tensor) -> list[NDArray[np.uint8]]:
    """Frames (H, W, 3) uint8 of pixels (3, frames, H, W) in -1..1.  Raises: NotFinite."""
    if not bool(torch.isfinite(video).all()):
        message = "NaN or infinity in the decoded pixels: no picture was made"
        raise NotFinite(message)
    return [frame_pixels(frame) for frame in video.unbind(1)]  # frames x (H, W, 3)


def frame_pixels(frame: Tensor) -> NDArray[np.uint8]:
    """One frame (3, H, W) in -1..1 -> uint8 (H, W, 3)."""
    unit = (frame.float() * 0.5 + 0.5).clamp(0, 1).permute(1, 2, 0)  # (H, W, 3)
    array: NDArray[np.uint8] = (unit.cpu().numpy() * 255).round().astype(np.uint8)
    return array
