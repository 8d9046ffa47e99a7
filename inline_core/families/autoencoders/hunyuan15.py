"""AutoencoderKLHunyuanVideo15: videos of HunyuanVideo 1.5 to latents and back.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers import AutoencoderKLHunyuanVideo15

from inline_core.families.autoencoders.hunyuan15_keys import hunyuan15_vae_sources
from inline_core.families.autoencoders.hunyuan15_spaces import tile_side
from inline_core.families.autoencoders.videos import VideoVae
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, fill

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.sampling.family import LatentSpace

_SCALING: Final = "scaling_factor"


class HunyuanVae15Runtime(VideoVae):
    """A loaded AutoencoderKLHunyuanVideo15.  Any of the device's threads."""

    def __init__(self, model: Any, space: LatentSpace) -> None:
        super().__init__(model, space, Interruption(_stages(model)))
        self._scaling = float(model.config.scaling_factor)
        self.scale = (self._scaling, space.shift)

    def raw(self, latents: Tensor) -> Tensor:
        """What the network decodes, from normalised latents (n, c, t, h, w) in float32."""
        return latents / self._scaling

    def normalised(self, raw: Tensor) -> Tensor:
        """Normalised latents, from what the network encoded (n, c, t, h, w) in float32."""
        return raw * self._scaling

    @contextmanager
    def tiling(self, frames: int, *, tiled: bool) -> Iterator[None]:
        """Let the network work for a while in tiles that fit the length of a video."""
        model, side = self._model, tile_side(frames)
        model.tile_sample_min_height = model.tile_sample_min_width = side
        inner = side // model.spatial_compression_ratio
        model.tile_latent_min_height = model.tile_latent_min_width = inner
        with super().tiling(frames, tiled=tiled):
            yield


def load_vae(plan: LoadPlan, space: LatentSpace) -> HunyuanVae15Runtime:
    """The VAE, ready to decode and encode.  Raises: ModelFileInvalid, RunCancelled."""
    scaling = plan.files.config.get(_SCALING) or space.scaling
    with torch.device("meta"):
        model: Any = AutoencoderKLHunyuanVideo15(
            **plan.identity.config, scaling_factor=float(scaling)
        )
    fill(model, hunyuan15_vae_sources(plan.logical.tensors, plan.identity.prefix), plan)
    return HunyuanVae15Runtime(model.eval(), space)


def _stages(model: Any) -> list[Any]:
    """The stages of both halves."""
    halves = (model.encoder.down_blocks, model.decoder.up_blocks)
    stages = [stage for half in halves for stage in half]
    return [*stages, model.encoder.mid_block, model.decoder.mid_block]
