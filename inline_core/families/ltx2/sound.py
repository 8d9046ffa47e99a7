"""The sound of LTX-2: an audio VAE that gives spectrograms, and a vocoder that makes them sound.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import torch
from accelerate import init_empty_weights
from diffusers import AutoencoderKLLTX2Audio
from diffusers.pipelines.ltx2 import LTX2Vocoder, LTX2VocoderWithBWE

from inline_core.families.ltx2.family import MEL_BINS
from inline_core.families.ltx2.keys import audio_vae_sources, vocoder_sources
from inline_core.families.transformer import buffers_as_weights, place_buffers
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, fill

if TYPE_CHECKING:
    from torch import Tensor

_STATISTICS: Final = ("latents_mean", "latents_std")
_RATE_HZ: Final = 16_000


class AudioVaeRuntime:
    """A loaded AutoencoderKLLTX2Audio.  Any of the device's threads."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._lock = threading.Lock()
        self.interruption = Interruption([*model.decoder.up])

    @property
    def sample_rate_hz(self) -> int:
        """Samples a second of what the spectrograms are of."""
        return int(self._model.config.sample_rate or _RATE_HZ)

    def decode(self, latents: Tensor) -> Tensor:
        """Normalised latents (1, channels * bins, frames) -> spectrograms (1, 2, frames, bins)."""
        model = self._model
        packed = latents.to(model.device, model.dtype).transpose(1, 2)  # (1, frames, c * bins)
        raw = packed * model.latents_std + model.latents_mean  # (1, frames, c * bins)
        spread = raw.unflatten(2, (-1, MEL_BINS)).transpose(1, 2)  # (1, c, frames, bins)
        with self._lock:
            found: Tensor = model.decode(spread, return_dict=False)[0]
        return found


class VocoderRuntime:
    """A loaded LTX2Vocoder, with or without bandwidth extension.  Any of the device's threads."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._lock = threading.Lock()
        inner = getattr(model, "vocoder", model)
        self.interruption = Interruption([*inner.upsamplers])

    @property
    def sample_rate_hz(self) -> int:
        """Samples a second of what it makes."""
        return int(self._model.config.output_sampling_rate)

    def decode(self, spectrograms: Tensor) -> Tensor:
        """Spectrograms (1, 2, frames, bins) -> samples (1, 2, n)."""
        placed = spectrograms.to(self._model.device, self._model.dtype)
        with self._lock:
            found: Tensor = self._model(placed)
        return found


def load_audio_vae(plan: LoadPlan) -> AudioVaeRuntime:
    """The audio VAE, ready to decode.  Raises: ModelFileInvalid, RunCancelled."""
    config = dict(plan.identity.config)
    told = {
        key: plan.files.config[key]
        for key in ("sample_rate", "mel_hop_length", "mel_bins", "causality_axis", "is_causal")
        if plan.files.config.get(key) is not None
    }
    with torch.device("meta"):
        model: Any = AutoencoderKLLTX2Audio(**{**config, **told})
    buffers_as_weights(model, *_STATISTICS)
    sources = audio_vae_sources(plan.logical.tensors, plan.identity.prefix)
    ignorable = [s.name for name, s in sources.items() if name.startswith("per_channel")]
    fill(model, sources, plan, ignorable=ignorable)
    return AudioVaeRuntime(model.eval())


def load_vocoder(plan: LoadPlan) -> VocoderRuntime:
    """The vocoder, ready to make sound.  Raises: ModelFileInvalid, RunCancelled."""
    extended = plan.identity.class_name == LTX2VocoderWithBWE.__name__
    build = LTX2VocoderWithBWE if extended else LTX2Vocoder
    told = {key: value for key, value in plan.files.config.items() if not key.startswith("_")}
    # Filters are computed where the file has none.
    with init_empty_weights(include_buffers=False):
        model: Any = build(**{**plan.identity.config, **told})
    sources = vocoder_sources(plan.logical.tensors, plan.identity.prefix)
    buffers_as_weights(model, *(name for name, _ in model.named_buffers() if name in sources))
    place_buffers(model, plan.placement.storage)
    fill(model, sources, plan)
    return VocoderRuntime(model.eval())
