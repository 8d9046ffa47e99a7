"""AutoencoderOobleck: sounds of Stable Audio and ACE-Step to latents and back.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

import math
import re
import threading
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers import AutoencoderOobleck

from inline_core.errors import InvalidParam, NotFinite
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, TensorSource, fill

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.sampling.family import LatentSpace

# Samples for each latent -> samples a second, from the published configs; in no shape.
_RATES: Final = {1920: 48_000, 2048: 44_100}
_USUAL_RATE: Final = 44_100
_FULL_SCALE: Final = 1.0
# -1 dBFS, the loudness that AceStepPipeline gives every sound.
_PEAK: Final = 10.0 ** (-1.0 / 20.0)
_LEAST_PEAK: Final = 1e-6
_UNIT_PARTS: Final = ("snake1", "conv1", "snake2", "conv2")
_UNITS: Final = 3


class OobleckRuntime:
    """A loaded AutoencoderOobleck.  Any of the device's threads."""

    def __init__(self, model: Any, space: LatentSpace) -> None:
        self._model = model
        self._lock = threading.Lock()
        self.space = space
        self.scale = (space.scaling, space.shift)
        self.interruption = Interruption([*model.encoder.block, *model.decoder.block])

    @property
    def sample_rate_hz(self) -> int:
        """Samples a second of what it decodes to."""
        return int(self._model.config.sampling_rate)

    def in_space(self, _: LatentSpace | None) -> OobleckRuntime:
        """The same: its latents are used as they are."""
        return self

    def decode_sound(self, latents: Tensor, *, tiled: bool = False) -> NDArray[np.float32]:
        """Latents (1, c, frames) -> samples (channels, n) float32, the loudest one at -1 dBFS.

        Silence stays silent.  Raises: NotFinite.
        """
        raw = latents.to(self._model.device, self._model.dtype)  # (1, c, frames)
        with self._lock:
            self._model.use_tiling = tiled
            try:
                decoded: Tensor = self._model.decode(raw).sample  # (1, channels, n)
            finally:
                self._model.use_tiling = False
        sound = decoded[0].float()  # (channels, n)
        if not bool(torch.isfinite(sound).all()):
            message = "NaN or infinity in the decoded sound: no sound was made"
            raise NotFinite(message)
        found: NDArray[np.float32] = _levelled(sound).cpu().numpy()
        return found

    def decode(self, *_: object, **__: object) -> NDArray[np.uint8]:
        """Raises: InvalidParam, as sounds are no pictures."""
        raise _no_pictures()

    def encode(self, *_: object, **__: object) -> Tensor:
        """Raises: InvalidParam, as sounds are no pictures."""
        raise _no_pictures()


def _no_pictures() -> InvalidParam:
    message = "this VAE is one of sounds: it reads and makes no pictures; use Decode Audio"
    return InvalidParam(message, port="vae")


def _levelled(sound: Tensor) -> Tensor:
    """The same sound (channels, n) with its peak at -1 dBFS; source: AceStepPipeline."""
    peak = sound.abs().amax()
    if peak > _FULL_SCALE:
        sound = sound / peak
        peak = sound.abs().amax()
    return sound * (_PEAK / peak.clamp_min(_LEAST_PEAK))


def load_vae(plan: LoadPlan, space: LatentSpace) -> OobleckRuntime:
    """The VAE, ready to decode.  Raises: ModelFileInvalid, RunCancelled."""
    config = dict(plan.identity.config)
    usual = _RATES.get(math.prod(config["downsampling_ratios"]), _USUAL_RATE)
    rate = int(plan.files.config.get("sampling_rate") or usual)
    with torch.device("meta"), warnings.catch_warnings():
        # Its convolutions are normalised in a way that torch calls outdated.
        warnings.simplefilter("ignore", FutureWarning)
        model: Any = AutoencoderOobleck(**config, sampling_rate=rate)
    stages = len(config["downsampling_ratios"])
    sources = oobleck_sources(plan.logical.tensors, plan.identity.prefix, stages)
    fill(model, sources, plan)
    return OobleckRuntime(model.eval(), space)


def oobleck_sources(names: Iterable[str], prefix: str, stages: int) -> dict[str, TensorSource]:
    """Module name -> place in the file, for the layouts of diffusers and of stable-audio-tools.

    There both halves are lists of layers, and the parameters of a snake are plain vectors.
    """
    found: dict[str, TensorSource] = {}
    for name in names:
        if name.startswith(prefix):
            module, _, leaf = name[len(prefix) :].rpartition(".")
            target = f"{_in_diffusers(module, stages)}.{leaf}"
            found[target] = TensorSource(name, folded=leaf in {"alpha", "beta"})
    return found


def _in_diffusers(module: str, stages: int) -> str:
    match = re.fullmatch(r"(encoder|decoder)\.layers\.(\d+)(?:\.(.+))?", module)
    if match is None:
        return module
    half, index, inner = match.group(1), int(match.group(2)), match.group(3)
    if inner is None:
        outer = {0: "conv1", stages + 1: "snake1", stages + 2: "conv2"}
        return f"{half}.{outer.get(index, f'layers.{index}')}"
    numbers = [int(part) for part in re.findall(r"layers\.(\d+)", inner)]
    # The encoder has its residual units before snake and convolution, the decoder behind them.
    ahead = 0 if half == "encoder" else 2
    unit = numbers[0] - ahead
    if 0 <= unit < _UNITS and len(numbers) > 1:
        part = f"res_unit{unit + 1}.{_UNIT_PARTS[numbers[1]]}"
    elif half == "encoder":
        part = {3: "snake1", 4: "conv1"}.get(numbers[0], inner)
    else:
        part = {0: "snake1", 1: "conv_t1"}.get(numbers[0], inner)
    return f"{half}.block.{index - 1}.{part}"
