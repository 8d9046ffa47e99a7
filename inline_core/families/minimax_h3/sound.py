"""The sound of MiniMax H3: an audio VAE, which decodes both channels of a stereo sound alike.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

import torch
from accelerate import init_empty_weights
from diffusers import AutoencoderKLMiniMaxH3Audio

from inline_core.errors import ModelFileInvalid
from inline_core.families.minimax_h3.denoise import LOUDER
from inline_core.families.minimax_h3.family import STEREO
from inline_core.families.minimax_h3.video_vae import STATISTICS
from inline_core.families.transformer import buffers_as_weights, place_buffers
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, fill, prefixed_sources

if TYPE_CHECKING:
    from torch import Tensor


class AudioVaeRuntime:
    """A loaded AutoencoderKLMiniMaxH3Audio.  Any of the device's threads."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._lock = threading.Lock()
        self.interruption = Interruption([*model.decoder.resblocks])
        shape = (1, -1, 1)
        self._mean = torch.tensor(model.config.latents_mean, device=model.device).view(shape)
        self._deviation = torch.tensor(model.config.latents_std, device=model.device).view(shape)

    @property
    def sample_rate_hz(self) -> int:
        """Samples a second of what it decodes to."""
        return int(self._model.config.sampling_rate)

    def decode(self, latents: Tensor) -> Tensor:
        """Latents (1, stereo * c, frames) as the sampler has them -> samples (1, stereo, n)."""
        placed = latents.to(self._model.device, torch.float32) / LOUDER
        channels = placed.reshape(STEREO, -1, placed.shape[-1])  # (stereo, c, frames)
        raw = channels * self._deviation + self._mean  # (stereo, c, frames)
        with self._lock:
            found: Tensor = self._model.decode(raw, return_dict=False)[0]  # (stereo, 1, n)
        return found.permute(1, 0, 2)


def load_audio_vae(plan: LoadPlan) -> AudioVaeRuntime:
    """The audio VAE, ready to decode.  Raises: ModelFileInvalid, RunCancelled."""
    told = {key: value for key, value in plan.files.config.items() if not key.startswith("_")}
    config = {**plan.identity.config, **told}
    if any(len(config.get(name) or ()) != config["latent_channels"] for name in STATISTICS):
        message = (
            f"{plan.label} does not tell how its latents are normalised: use the folder of the "
            "audio VAE with its config.json"
        )
        raise ModelFileInvalid(message)
    # Its filters are computed where the file has none.
    with init_empty_weights(include_buffers=False), warnings.catch_warnings():
        # Its convolutions are normalised in a way that torch calls outdated.
        warnings.simplefilter("ignore", FutureWarning)
        model: Any = AutoencoderKLMiniMaxH3Audio(**config)
    sources = prefixed_sources(plan.logical.tensors, plan.identity.prefix)
    buffers_as_weights(model, *[name for name, _ in model.named_buffers() if name in sources])
    place_buffers(model, plan.placement.storage)
    fill(model, sources, plan)
    return AudioVaeRuntime(model.eval())
