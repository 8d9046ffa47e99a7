"""AutoencoderKLLTX2Video: videos of LTX-2 to latents and back.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers import AutoencoderKLLTX2Video

from inline_core.families.autoencoders.videos import ScaledVideoVae, by_channel
from inline_core.families.ltx2.keys import video_vae_sources
from inline_core.families.transformer import buffers_as_weights
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, fill

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.sampling.family import LatentSpace

_STATISTICS: Final = ("latents_mean", "latents_std")
# In no shape; the class has the published ones.
_OPTIONS: Final = (
    "scaling_factor",
    "encoder_causal",
    "decoder_causal",
    "encoder_spatial_padding_mode",
    "decoder_spatial_padding_mode",
)


class LTX2VaeRuntime(ScaledVideoVae):
    """A loaded AutoencoderKLLTX2Video with the statistics of its file.  Any device thread."""

    def __init__(self, model: Any, space: LatentSpace) -> None:
        stages = [*model.encoder.down_blocks, *model.decoder.up_blocks]
        deviation = by_channel(model.latents_std, model.device) / model.config.scaling_factor
        statistics = (by_channel(model.latents_mean, model.device), deviation)
        super().__init__(model, space, Interruption(stages), statistics)

    @contextmanager
    def tiling(self, frames: int, *, tiled: bool) -> Iterator[None]:
        """Let the network work for a while in tiles of space and time."""
        self._model.use_framewise_decoding = tiled
        try:
            with super().tiling(frames, tiled=tiled):
                yield
        finally:
            self._model.use_framewise_decoding = False

    def run(self, raw: Tensor) -> Tensor:
        """The network's pixels (n, 3, frames, H, W) of raw latents, without a time."""
        pixels: Tensor = self._model.decode(raw, None, return_dict=False)[0]
        return pixels


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
