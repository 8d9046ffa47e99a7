"""AutoencoderKLQwenImage21: pictures with alpha to latents of 16 pixels, and back.

A picture is a video of one frame to the network.  Imports torch and diffusers, so it is imported
on the device thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from diffusers import AutoencoderKLQwenImage21

from inline_core.errors import ModelFileInvalid
from inline_core.families.autoencoders.videos import ScaledVideoVae, by_channel
from inline_core.families.autoencoders.wan_keys import wan_vae_sources
from inline_core.families.transformer import place_buffers
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, fill

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.sampling.family import LatentSpace

_OPAQUE = 255
_COLOURS = 3
_CHANNELS = 4


class PictureVae(ScaledVideoVae):
    """The VAE without the axis of time, of pictures with alpha.  Any of the device's threads."""

    knows_alpha = True

    def encode(self, pixels: NDArray[Any], *, tiled: bool = False) -> Tensor:
        """(H, W, 3 or 4), uint8 or float32 in 0..1 -> normalised (1, c, h, w).

        What has no alpha is opaque.  Raises: ValueError for several pictures.
        """
        if pixels.ndim > _COLOURS:
            message = "this VAE takes one picture at a time"
            raise ValueError(message)
        if pixels.shape[-1] < _CHANNELS:
            full = _OPAQUE if pixels.dtype == np.uint8 else 1
            alpha = np.full((*pixels.shape[:-1], 1), full, pixels.dtype)
            pixels = np.concatenate([pixels[..., :_COLOURS], alpha], axis=-1)
        return super().encode(pixels, tiled=tiled)[:, :, 0]


def load_vae(plan: LoadPlan, space: LatentSpace) -> PictureVae:
    """The VAE, ready to decode and encode.  Raises: ModelFileInvalid, RunCancelled.

    Means and deviations are those of the class in diffusers, unless a config.json says others.
    """
    config = dict(plan.identity.config)
    told = {
        key: plan.files.config[key]
        for key in ("latents_mean", "latents_std")
        if plan.files.config.get(key)
    }
    with torch.device("meta"):
        model: Any = AutoencoderKLQwenImage21(**config, **told)
    known = (model.config.latents_mean, model.config.latents_std)
    if any(len(values) != config["z_dim"] for values in known):
        message = (
            f"{plan.label} has {config['z_dim']} latent channels, and how they are normalised is "
            "not known: use the folder of the VAE with its config.json"
        )
        raise ModelFileInvalid(message)
    place_buffers(model, plan.placement.storage)
    fill(model, wan_vae_sources(plan.logical.tensors, plan.identity.prefix), plan)
    statistics = (by_channel(known[0], model.device), by_channel(known[1], model.device))
    return PictureVae(model.eval(), space, Interruption(_blocks(model)), statistics)


def _blocks(model: Any) -> list[Any]:
    """The stages of both halves."""
    halves = (model.encoder.down_blocks, model.decoder.up_blocks)
    stages = [stage for half in halves for stage in half]
    return [*stages, model.encoder.mid_block, model.decoder.mid_block]
