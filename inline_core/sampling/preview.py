"""Live previews: a linear map from latents to colours, learnt from what the VAE really decodes."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, Final

import torch
from PIL import Image as PillowImage

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

PREVIEW_SIDE: Final = 512
_RIDGE: Final = 1e-3


class LatentColours:
    """Colours of latents by least squares: pixels ~ latents @ weights + bias.

    `learn` adds (latents, pixels) pairs to the normal equations, `jpeg` uses them; before anything
    was learnt the three strongest directions of the latents stand in for colours.  Any thread.
    """

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self._lock = threading.Lock()
        self._gram = torch.eye(channels + 1) * _RIDGE
        self._moment = torch.zeros(channels + 1, 3)
        self._solution: Tensor | None = None

    @property
    def learnt(self) -> bool:
        """True once a pair was seen."""
        return self._solution is not None

    def learn(self, latents: Tensor, pixels: Tensor, weight: float = 1.0) -> None:
        """Add a decoded picture: `latents` (n, c, h, w) normalised, `pixels` (n, 3, H, W) -1..1."""
        size = (latents.shape[-2], latents.shape[-1])
        small = torch.nn.functional.adaptive_avg_pool2d(pixels.float().cpu(), size)
        x = _with_one(latents.float().cpu())  # (n*h*w, c + 1)
        y = small.clamp(-1, 1).permute(0, 2, 3, 1).reshape(-1, 3)  # (n*h*w, 3)
        with self._lock:
            self._gram = self._gram + weight * (x.T @ x) / len(x)
            self._moment = self._moment + weight * (x.T @ y) / len(x)
            self._solution = torch.linalg.solve(self._gram, self._moment)  # (c + 1, 3)

    def colours(self, latents: Tensor) -> Tensor:
        """One latent (c, h, w) -> uint8 (h, w, 3)."""
        height, width = latents.shape[-2:]
        with torch.inference_mode():
            x = _with_one(latents.detach().float().cpu()[None])  # (h*w, c + 1)
            solution = self._solution
            y = x @ solution if solution is not None else _strongest(x[:, :-1])  # (h*w, 3)
            unit = (y * 0.5 + 0.5).clamp(0, 1).view(height, width, 3)
            return (unit * 255).round().to(torch.uint8)  # (h, w, 3)

    def jpeg(self, latents: Tensor) -> bytes:
        """A preview of one latent (c, h, w) as JPEG bytes, at most 512 pixels on a side."""
        small = PillowImage.fromarray(self.colours(latents).numpy(), "RGB")
        scale = max(1, min(8, PREVIEW_SIDE // max(small.size)))
        size = (small.width * scale, small.height * scale)
        return as_jpeg(small.resize(size, PillowImage.Resampling.BILINEAR))


def decoded_jpeg(decode: Callable[[Tensor], NDArray[np.uint8]], latents: Tensor) -> bytes:
    """A preview of one latent (c, h, w) by the VAE's own `decode`.  Any thread.

    For VAEs so small that it is cheap; their latents are too far from linear for `LatentColours`.
    """
    with torch.inference_mode():
        pixels = decode(latents[None])  # (height, width, 3)
    picture = PillowImage.fromarray(pixels, "RGB")
    picture.thumbnail((PREVIEW_SIDE, PREVIEW_SIDE))
    return as_jpeg(picture)


def as_jpeg(picture: PillowImage.Image) -> bytes:
    """Encode a preview."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def _with_one(latents: Tensor) -> Tensor:
    """(n, c, h, w) -> (n*h*w, c + 1) with a constant column for the bias."""
    flat = latents.permute(0, 2, 3, 1).reshape(-1, latents.shape[1])  # (n*h*w, c)
    return torch.cat([flat, torch.ones(len(flat), 1)], dim=1)


def _strongest(flat: Tensor) -> Tensor:
    """Projection on the three principal directions, scaled to about -1..1."""
    centred = flat - flat.mean(0)
    _, _, directions = torch.linalg.svd(centred.T @ centred)
    projected = centred @ directions[:3].T  # (h*w, 3)
    scaled: Tensor = projected / (2 * projected.std(0) + 1e-6)
    return scaled
