"""The noise levels a model was trained on: sigma by timestep, and back."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

FLOW_SIZE: Final = 1000
FLUX_SIZE: Final = 10000
FULL_NOISE: Final = 999999999.9
"""What ComfyUI takes for the sigma at 0 percent of an eps model: above every real one."""

_PIXELS_PER_TOKEN: Final = 256
# Of a zero-terminal-SNR model at its last timestep, as ComfyUI and diffusers' Euler have it (2^-24
# is diffusers'; both are pure noise to the model).
_LAST_KEPT: Final = 2**-24
_FLUX_TOKENS: Final = (256, 4096)


class SigmaTable(Protocol):
    """The sigmas of one model, ascending."""

    @property
    def flow(self) -> bool:
        """True: x = (1 - sigma) x0 + sigma noise.  False (eps): x = x0 + sigma noise."""

    def __len__(self) -> int:
        """How many sigmas it has."""

    def __getitem__(self, index: int) -> float:
        """Sigma number `index`, ascending; negative counts from the end.  Raises: IndexError."""

    @property
    def smallest(self) -> float:
        """The first sigma of the table."""

    @property
    def largest(self) -> float:
        """The last sigma of the table."""

    def sigma(self, timestep: float) -> float:
        """Sigma at `timestep`, in the units the model is fed with."""

    def timestep(self, sigma: float) -> float:
        """The timestep the model is fed with at `sigma`."""

    def sigma_at(self, percent: float) -> float:
        """Sigma when `percent` (0..1) of the sampling is done: huge or the top at 0, 0 at 1."""


@dataclass(frozen=True, slots=True)
class FlowTable:
    """A flow model with sigma(t) = a t / (1 + (a - 1) t), t in 0..1, a = `shift` above 0.

    `stretch` other than 1 pulls all of them towards or away from 1: 1 - (1 - sigma) stretch, so
    that a schedule ends where the model was trained to end (`terminal_stretch`).  `multiplier`
    scales t to the timestep the model is fed with (1000 for SD3 and Wan, 1 for Z-Image, Lumina and
    AuraFlow); it has `size` entries.  Esser et al. 2024, "Scaling Rectified Flow Transformers",
    section 5.3.2.
    """

    shift: float = 1.0
    multiplier: float = 1.0
    size: int = FLOW_SIZE
    stretch: float = 1.0

    @property
    def flow(self) -> bool:
        """True."""
        return True

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> float:
        return self._at((_place(index, self.size) + 1) / self.size)

    @property
    def smallest(self) -> float:
        """The first sigma of the table."""
        return self[0]

    @property
    def largest(self) -> float:
        """The last sigma of the table: 1."""
        return self[-1]

    def sigma(self, timestep: float) -> float:
        """Sigma at `timestep` in 0..multiplier."""
        return self._at(timestep / self.multiplier)

    def timestep(self, sigma: float) -> float:
        """The timestep the model is fed with: sigma itself, scaled."""
        return sigma * self.multiplier

    def sigma_at(self, percent: float) -> float:
        """Sigma when `percent` (0..1) of the sampling is done: 1 at 0, 0 at 1."""
        return 0.0 if percent >= 1 else self._at(1 - max(percent, 0.0))

    def _at(self, time: float) -> float:
        sigma = _shifted(self.shift, time)
        return sigma if self.stretch == 1.0 else 1.0 - (1.0 - sigma) * self.stretch


@dataclass(frozen=True, slots=True)
class EpsTable:
    """A model that predicts noise, trained on `size` betas, evenly spaced in their square root.

    The defaults are those of Stable Diffusion 1.5 and SDXL ("scaled linear"; Rombach et al. 2022).
    Timesteps are 0..size - 1; between two of them log sigma is interpolated.  With `zero_snr` the
    sigmas are stretched so that the last one is (nearly) pure noise, as some v models were trained.
    """

    beta_start: float = 0.00085
    beta_end: float = 0.012
    size: int = 1000
    zero_snr: bool = False

    @property
    def flow(self) -> bool:
        """False."""
        return False

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> float:
        return math.exp(self._logs[_place(index, self.size)])

    @property
    def smallest(self) -> float:
        """The first sigma of the table."""
        return self[0]

    @property
    def largest(self) -> float:
        """The last sigma of the table."""
        return self[-1]

    def sigma(self, timestep: float) -> float:
        """Sigma at `timestep`; beyond the ends of the table it is that of the end."""
        logs = self._logs
        timestep = min(max(timestep, 0.0), self.size - 1)
        low = int(timestep)
        high = min(low + 1, self.size - 1)
        part = timestep - low
        return math.exp(logs[low] + (logs[high] - logs[low]) * part)

    def timestep(self, sigma: float) -> float:
        """The timestep whose sigma is nearest in the logarithm; always a whole number.

        The model knows whole timesteps only (k-diffusion calls this the quantized form).
        """
        if sigma <= 0:
            return 0.0
        logs = self._logs
        log = math.log(sigma)
        above = bisect.bisect_left(logs, log)
        near = [place for place in (above - 1, above) if 0 <= place < self.size]
        return float(min(near, key=lambda place: abs(logs[place] - log)))

    def sigma_at(self, percent: float) -> float:
        """Sigma when `percent` (0..1) of the sampling is done: huge at 0, 0 at 1."""
        if percent <= 0:
            return FULL_NOISE
        if percent >= 1:
            return 0.0
        return self.sigma((1 - percent) * (self.size - 1))

    @property
    def _logs(self) -> tuple[float, ...]:
        return _eps_logs(self.beta_start, self.beta_end, self.size, zero_snr=self.zero_snr)


def flux_table(mu: float, size: int = FLUX_SIZE) -> FlowTable:
    """The table of FLUX.1: sigma(t) = e^mu / (e^mu + 1/t - 1), a shift of e^mu in fine steps.

    `mu` grows with the picture (`flux_mu`).
    """
    return FlowTable(math.exp(mu), size=size)


def size_for(steps: int) -> int:
    """The size near FLUX_SIZE that `steps` divides: every n-th entry is exactly at its share."""
    return steps * max(1, round(FLUX_SIZE / steps))


def terminal_stretch(shift: float, steps: int, terminal: float) -> float:
    """The stretch with which the last sigma of `steps` even steps, before 0, is `terminal`.

    `stretch_shift_to_terminal` of FlowMatchEulerDiscreteScheduler of diffusers; 1 for one step.
    """
    last = 1.0 - _shifted(shift, 1.0 / steps)
    return (1.0 - terminal) / last if last > 0 else 1.0


def flux_sigma(mu: float, time: float) -> float:
    """Sigma of FLUX's shift at `time` in 0..1: e^mu / (e^mu + 1/time - 1), 0 at 0."""
    return _shifted(math.exp(mu), time)


def mu_of_tokens(tokens: float, few: tuple[int, float], many: tuple[int, float]) -> float:
    """Mu on the line through two points (tokens, mu); it goes on beyond both.

    FLUX.1 and LTX-Video shift their sigmas so; the points are the models' own.
    """
    slope = (many[1] - few[1]) / (many[0] - few[0])
    return few[1] + (tokens - few[0]) * slope


def flux_mu(width: int, height: int, base_shift: float = 0.5, max_shift: float = 1.15) -> float:
    """Mu of FLUX.1 for a picture of `width` x `height` pixels (`get_lin_function` of its code)."""
    few, many = _FLUX_TOKENS
    tokens = width * height / _PIXELS_PER_TOKEN
    return mu_of_tokens(tokens, (few, base_shift), (many, max_shift))


def _shifted(shift: float, time: float) -> float:
    return shift * time / (1 + (shift - 1) * time)


def _place(index: int, size: int) -> int:
    if not -size <= index < size:
        message = f"sigma {index} of {size}"
        raise IndexError(message)
    return index % size


@lru_cache(maxsize=8)
def _eps_logs(
    beta_start: float, beta_end: float, size: int, *, zero_snr: bool = False
) -> tuple[float, ...]:
    """Log sigma by timestep: sigma = sqrt((1 - a) / a), a = the product of all 1 - beta so far.

    Lin et al. 2023 (arXiv:2305.08891), algorithm 1, shifts and scales the square roots of all a so
    that the last is 0, which is `_LAST_KEPT` here, as a sigma has to be finite.
    """
    start, end = math.sqrt(beta_start), math.sqrt(beta_end)
    shares: list[float] = []
    kept = 1.0
    for i in range(size):
        kept *= 1 - (start + (end - start) * i / (size - 1)) ** 2
        shares.append(kept)
    if zero_snr:
        first, last = math.sqrt(shares[0]), math.sqrt(shares[-1])
        shares = [((math.sqrt(a) - last) * first / (first - last)) ** 2 for a in shares]
        shares[-1] = _LAST_KEPT
    return tuple(0.5 * math.log((1 - a) / a) for a in shares)
