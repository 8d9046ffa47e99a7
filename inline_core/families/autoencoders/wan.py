"""AutoencoderKLWan: videos (Wan 2.1 and 2.2) and pictures (Qwen-Image, Krea 2) to latents and back.

A picture is a video of one frame.  Imports torch and diffusers, so it is imported on the device
thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from diffusers import AutoencoderKLWan

from inline_core.errors import ModelFileInvalid
from inline_core.families.autoencoders.videos import ScaledVideoVae, by_channel
from inline_core.families.autoencoders.wan_keys import wan_vae_sources
from inline_core.families.autoencoders.wan_spaces import STATISTICS
from inline_core.families.transformer import place_buffers
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, fill

if TYPE_CHECKING:
    from inline_core.sampling.family import LatentSpace


def load_vae(plan: LoadPlan, space: LatentSpace) -> ScaledVideoVae:
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
    known = (model.config.latents_mean, model.config.latents_std)
    statistics = (by_channel(known[0], model.device), by_channel(known[1], model.device))
    return ScaledVideoVae(model.eval(), space, Interruption(_blocks(model)), statistics)


def _blocks(model: Any) -> list[Any]:
    """The stages of both halves."""
    halves = (model.encoder.down_blocks, model.decoder.up_blocks)
    stages = [stage for half in halves for stage in half]
    return [*stages, model.encoder.mid_block, model.decoder.mid_block]
