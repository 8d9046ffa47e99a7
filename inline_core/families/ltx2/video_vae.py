"""AutoencoderKLLTX2Video: videos of LTX-2 to latents and back.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from diffusers import AutoencoderKLLTX2Video

from inline_core.errors import NotFinite
from inline_core.families.autoencoders.kl import unit_pixels
from inline_core.families.autoencoders.wan import frame_pixels
from inline_core.families.ltx2.keys import video_vae_sources
from inline_core.families.transformer import buffers_as_weights
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, fill

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.sampling.family import LatentSpace

_PICTURE: Final = 3  # axes of a picture's array; a video has one more
_STATISTICS: Final = ("latents_mean", "latents_std")
# In no shape; the class has the published ones.
_OPTIONS: Final = (
    "scaling_factor",
    "encoder_causal",
    "decoder_causal",
    "encoder_spatial_padding_mode",
    "decoder_spatial_padding_mode",
)


class LTX2VaeRuntime:
    """A loaded AutoencoderKLLTX2Video with the statistics of its file.  Any device thread.

    `scale` is (1, 0), as normalising is its own work.
    """

    def __init__(self, model: Any, space: LatentSpace) -> None:
        self._model = model
        self._lock = threading.Lock()
        self.space = space
        self.scale = (space.scaling, space.shift)
        self.interruption = Interruption([*model.encoder.down_blocks, *model.decoder.up_blocks])
        shape = (1, -1, 1, 1, 1)
        self._mean = model.latents_mean.float().view(shape)
        self._deviation = model.latents_std.float().view(shape) / model.config.scaling_factor

    def in_space(self, _: LatentSpace | None) -> LTX2VaeRuntime:
        """The same: its statistics belong to it."""
        return self

    def decode(self, latents: Tensor, *, tiled: bool = False) -> NDArray[np.uint8]:
        """Normalised latents (1, c, t, h, w) -> uint8 (frames, H, W, 3).  Raises: NotFinite."""
        placed = latents.to(self._model.device, torch.float32)
        raw = (placed * self._deviation + self._mean).to(self._model.dtype)  # (1, c, t, h, w)
        with self._lock, _tiling(self._model, tiled=tiled):
            pixels = self._model.decode(raw, None, return_dict=False)[0][0]  # (3, frames, H, W)
        if not bool(torch.isfinite(pixels).all()):
            message = "NaN or infinity in the decoded pixels: no video was made"
            raise NotFinite(message)
        return np.stack([frame_pixels(frame.float()) for frame in pixels.unbind(1)])

    def encode(self, pixels: NDArray[Any], *, tiled: bool = False) -> Tensor:
        """(H, W, 3) or (frames, H, W, 3), uint8 or float32 in 0..1 -> normalised (1, c, t, h, w).

        The mode of the encoded distribution, without noise.
        """
        frames = pixels[None] if pixels.ndim == _PICTURE else pixels
        video = unit_pixels(frames).permute(3, 0, 1, 2)[None] * 2 - 1  # (1, 3, frames, H, W)
        inputs = video.to(self._model.device, self._model.dtype)
        with self._lock, _tiling(self._model, tiled=tiled):
            raw = self._model.encode(inputs).latent_dist.mode()  # (1, c, t, h, w)
        latents: Tensor = (raw.float() - self._mean) / self._deviation  # (1, c, t, h, w)
        return latents.cpu()


@contextmanager
def _tiling(model: Any, *, tiled: bool) -> Iterator[None]:
    """Let a VAE work in tiles of space and time for a while."""
    model.use_tiling = model.use_framewise_decoding = tiled
    try:
        yield
    finally:
        model.use_tiling = model.use_framewise_decoding = False


def load_vae(plan: LoadPlan, space: LatentSpace) -> LTX2VaeRuntime:
    """The VAE, ready to decode and encode.  Raises: ModelFileInvalid, RunCancelled."""
    told = plan.files.config
    # Original files have the configs of all components in their header.
    inner = told.get("vae")
    original = inner if isinstance(inner, Mapping) else {}
    options = {key: told[key] for key in _OPTIONS if told.get(key) is not None}
    if original.get("causal_decoder") is not None:
        options["decoder_causal"] = bool(original["causal_decoder"])
    with torch.device("meta"):
        model: Any = AutoencoderKLLTX2Video(**plan.identity.config, **options)
    buffers_as_weights(model, *_STATISTICS)
    sources = video_vae_sources(plan.logical.tensors, plan.identity.prefix)
    used = {source.name for source in sources.values()}
    fill(model, sources, plan, ignorable=[n for n in plan.logical.tensors if n not in used])
    return LTX2VaeRuntime(model.eval(), space)
