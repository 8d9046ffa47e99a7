"""Live previews: a linear map from latents to colours, learnt from what the VAE really decodes.

A picture becomes a JPEG, a video an animated WebP.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from PIL import Image as PillowImage

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

PREVIEW_SIDE: Final = 512
DECODED_LATENTS: Final = 32
VIDEO_SIDE: Final = 256
VIDEO_FRAMES: Final = 16
VIDEO_MS: Final = 1600  # for the whole loop, however many frames are shown
VIDEO_DIMS: Final = 4  # channels, frames, height, width
_RIDGE: Final = 1e-3
_FORMAT: Final = 1


class LatentColours:
    """Colours of latents by least squares: pixels ~ latents @ weights + bias.

    `learn` adds (latents, pixels) pairs to the normal equations, `encode` uses them; before
    anything was learnt the three strongest directions of the latents stand in for colours.  Any
    thread.
    """

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self._lock = threading.Lock()
        self._gram = torch.eye(channels + 1) * _RIDGE
        self._moment = torch.zeros(channels + 1, 3)
        self._solution: Tensor | None = None
        self._pictures = 0

    @property
    def learnt(self) -> bool:
        """True once a pair was seen."""
        return self._solution is not None

    @property
    def pictures(self) -> int:
        """How many pairs were seen."""
        return self._pictures

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
            self._pictures += 1

    def colours(self, latents: Tensor) -> Tensor:
        """One latent (c, h, w) -> uint8 (h, w, 3)."""
        height, width = latents.shape[-2:]
        with torch.inference_mode():
            x = _with_one(on_host(latents)[None])  # (h*w, c + 1)
            solution = self._solution
            y = x @ solution if solution is not None else _strongest(x[:, :-1])  # (h*w, 3)
            unit = (y * 0.5 + 0.5).clamp(0, 1).view(height, width, 3)
            return (unit * 255).round().to(torch.uint8)  # (h, w, 3)

    def encode(self, latents: Tensor) -> bytes:
        """A preview of one latent: (c, h, w) as JPEG, (c, frames, h, w) as an animated WebP."""
        if latents.ndim < VIDEO_DIMS:
            with one_thread():
                return as_jpeg(_enlarged(self.colours(latents), PREVIEW_SIDE))
        shown = spread(latents.shape[1], VIDEO_FRAMES)
        if len(shown) == 1:
            return self.encode(latents[:, 0])
        with one_thread():
            few = on_host(latents[:, shown])  # (c, frames, h, w)
            height, width = few.shape[-2:]
            # All frames in one go, one below the other: untaught colours must not differ by frame.
            tall = self.colours(few.reshape(few.shape[0], -1, width))  # (frames * h, w, 3)
            frames = tall.view(len(shown), height, width, 3)
            return as_webp([_enlarged(frame, VIDEO_SIDE) for frame in frames])

    def as_json(self) -> dict[str, Any]:
        """What was learnt, to be stored."""
        with self._lock:
            return {
                "format": _FORMAT,
                "channels": self._channels,
                "pictures": self._pictures,
                # Symmetric: what is above the diagonal is left out.
                "gram": [row[: end + 1] for end, row in enumerate(_rounded(self._gram))],
                "moment": _rounded(self._moment),
            }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], channels: int) -> LatentColours:
        """The colours that `as_json` gave.  Raises: ValueError if it makes no sense."""
        made = cls(channels)
        try:
            rows = document["gram"]
            full = [[*row, *[0.0] * (len(rows) - len(row))] for row in rows]
            lower = torch.tensor(full, dtype=torch.float32)
            gram = lower + lower.tril(-1).T
            moment = torch.tensor(document["moment"], dtype=torch.float32)
            pictures = int(document["pictures"])
            known = document["format"] == _FORMAT and pictures > 0
        except (KeyError, TypeError, IndexError, RuntimeError) as error:
            message = f"no colours: {error}"
            raise ValueError(message) from error
        fits = gram.shape == made._gram.shape and moment.shape == made._moment.shape
        if not (known and fits and bool(gram.isfinite().all() and moment.isfinite().all())):
            message = "colours of another format or another VAE"
            raise ValueError(message)
        try:
            made._solution = torch.linalg.solve(gram, moment)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        made._gram, made._moment, made._pictures = gram, moment, pictures
        return made


@contextmanager
def one_thread() -> Iterator[None]:
    """Draw with one thread: more would fight with denoising for the processor's cores.

    The count belongs to the calling thread; the device's threads have their own.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_host(latents: Tensor) -> Tensor:
    """Latents in float32 in host memory, without waiting for the steps that the device does next.

    The sampler has looked at these latents before it offers them, so they are complete.
    """
    if not latents.is_cuda:
        return latents.detach().float().cpu()
    with torch.cuda.stream(torch.cuda.Stream(latents.device)):  # type: ignore[no-untyped-call]
        return latents.detach().float().cpu()


def spread(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, evenly spread, the first one among them."""
    return [index * count // min(count, most) for index in range(min(count, most))]


def decoded_jpeg(decode: Callable[[Tensor], NDArray[np.uint8]], latents: Tensor) -> bytes:
    """A preview of one latent (c, h, w) by the VAE's own `decode`.  Any thread.

    For VAEs so small that it is cheap; their latents are too far from linear for `LatentColours`.
    Latents of more than 32 on a side are averaged down first.
    """
    with torch.inference_mode(), one_thread():
        pixels = decode(shrunk(latents[None], DECODED_LATENTS))  # (height, width, 3 or 4)
    picture = PillowImage.fromarray(pixels).convert("RGB")
    picture.thumbnail((PREVIEW_SIDE, PREVIEW_SIDE))
    return as_jpeg(picture)


def shrunk(latents: Tensor, most: int) -> Tensor:
    """(n, c, h, w) averaged down until no side is longer than `most`."""
    height, width = latents.shape[-2:]
    scale = min(1.0, most / max(height, width))
    if scale == 1.0:
        return latents
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    return torch.nn.functional.adaptive_avg_pool2d(latents.float(), size)


def as_jpeg(picture: PillowImage.Image) -> bytes:
    """Encode a preview."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def as_webp(frames: Sequence[PillowImage.Image]) -> bytes:
    """Encode a moving preview that plays forever; the fastest method, as it is looked at once."""
    buffer = io.BytesIO()
    frames[0].save(
        buffer,
        "WEBP",
        save_all=True,
        append_images=frames[1:],
        duration=VIDEO_MS // len(frames),
        loop=0,
        quality=60,
        method=0,
    )
    return buffer.getvalue()


def _enlarged(colours: Tensor, most: int) -> PillowImage.Image:
    """uint8 (h, w, 3) as a picture, up to eight times as large and no larger than `most`."""
    small = PillowImage.fromarray(colours.numpy(), "RGB")
    scale = min(8.0, most / max(small.size))
    scale = float(int(scale)) if scale >= 1 else scale
    size = (max(1, round(small.width * scale)), max(1, round(small.height * scale)))
    return small.resize(size, PillowImage.Resampling.BILINEAR)


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


def _rounded(matrix: Tensor) -> list[list[float]]:
    return [[float(f"{value:.7g}") for value in row] for row in matrix.tolist()]
