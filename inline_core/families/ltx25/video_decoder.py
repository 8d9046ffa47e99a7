"""The video decoder of LTX-2.5: pixels from noise in one step, with latents as its context.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from diffusers import LTX2VideoDiffusionDecoderModel

from inline_core.errors import InvalidParam
from inline_core.families.autoencoders.videos import by_channel, pixels_of
from inline_core.families.ltx25.windows import WindowedAttention
from inline_core.families.transformer import buffers_as_weights
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, fill, prefixed_sources

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.sampling.family import LatentSpace

_STATISTICS: Final = ("latents_mean", "latents_std")
# In no shape; the class has the published ones.
_OPTIONS: Final = (
    "scaling_factor",
    "decoder_stage_kernels",
    "decoder_stage5_kernel",
    "decoder_upsample_strides",
    "decoder_timestep_scale_multiplier",
    "decoder_model_output_type",
    "decoder_num_inference_steps",
    "spatial_compression_ratio",
    "temporal_compression_ratio",
)
# It starts from noise, always from the same one: a latent is always the same video.
_SEED: Final = 0
_ENOUGH: Final = 64  # latents along an axis that are more than any window


class VideoDecoderRuntime:
    """A loaded LTX2VideoDiffusionDecoderModel with the statistics of its file.  Any device thread.

    It decodes only; `scale` is that of its space, as normalising is its own work.
    """

    def __init__(self, model: Any, space: LatentSpace) -> None:
        self._model = model
        self._lock = threading.Lock()
        self.space = space
        self.scale = (space.scaling, space.shift)
        stages = [block for stage in model.decoder.det_stages for block in stage]
        self.interruption = Interruption([*stages, *model.decoder.diff_blocks])
        self._mean = by_channel(model.latents_mean, model.device)
        deviation = by_channel(model.latents_std, model.device)
        self._deviation = deviation / model.config.scaling_factor

    def in_space(self, _: LatentSpace | None) -> VideoDecoderRuntime:
        """The same: its statistics belong to it."""
        return self

    def decode(self, latents: Tensor, *, tiled: bool = False) -> NDArray[np.uint8]:
        """Normalised latents (1, c, t, h, w) -> uint8 (frames, H, W, 3).

        Raises: NotFinite; InvalidParam for a video that its windows are larger than.
        """
        self._check(latents.shape[2:])
        placed = latents.to(self._model.device, torch.float32)
        raw = (placed * self._deviation + self._mean).to(self._model.dtype)  # (1, c, t, h, w)
        generator = torch.Generator("cpu").manual_seed(_SEED)
        with self._lock:
            self._model.use_tiling = tiled
            pixels = self._model.decode(raw, generator=generator, return_dict=False)[0][0]
        return np.stack(pixels_of(pixels))  # of (3, frames, H, W)

    def _check(self, size: Sequence[int]) -> None:
        """Raise InvalidParam for latents (t, h, w) that are smaller than a window."""
        if self._fits(size):
            return
        least = [
            next(n for n in range(1, _ENOUGH + 1) if n == _ENOUGH or self._fits(_with(axis, n)))
            for axis in range(len(size))
        ]
        config = self._model.config
        frames = (least[0] - 1) * config.temporal_compression_ratio + 1
        height, width = (side * config.spatial_compression_ratio for side in least[1:])
        message = (
            f"LTX-2.5 cannot decode a video as small as this: its video decoder needs {width}x"
            f"{height} and {frames} frames at least"
        )
        raise InvalidParam(message, port="latent")

    def _fits(self, size: Sequence[int]) -> bool:
        """Say whether latents (t, h, w) are as large as the windows of all stages."""
        config, decoder = self._model.config, self._model.decoder
        padding = decoder.trailing_pad_latent_frames
        grid = [size[0] + padding, *size[1:]]
        for kernel, upsample in zip(config.decoder_stage_kernels, decoder.upsamples, strict=True):
            if any(length < window for length, window in zip(grid, kernel, strict=True)):
                return False
            grid = [length * by for length, by in zip(grid, upsample.stride, strict=True)]
            grid[0] -= upsample.stride[0] - 1  # the first frame stands for itself
        grid[0] -= padding * config.temporal_compression_ratio
        last = zip(grid, config.decoder_stage5_kernel, strict=True)
        return all(length >= window for length, window in last)


def _with(axis: int, length: int) -> list[int]:
    """Sizes that are large but for one."""
    return [length if place == axis else _ENOUGH for place in range(3)]


def load_vae(plan: LoadPlan, space: LatentSpace) -> VideoDecoderRuntime:
    """The decoder, ready to decode.  Raises: ModelFileInvalid, RunCancelled."""
    told = plan.files.config
    options = {key: told[key] for key in _OPTIONS if told.get(key) is not None}
    with torch.device("meta"):
        model: Any = LTX2VideoDiffusionDecoderModel(**{**plan.identity.config, **options})
    buffers_as_weights(model, *_STATISTICS)
    model.set_attn_processor(WindowedAttention())
    fill(model, prefixed_sources(plan.logical.tensors, plan.identity.prefix), plan)
    return VideoDecoderRuntime(model.eval(), space)
