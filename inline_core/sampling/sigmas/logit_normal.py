"""Noise levels whose logit is normal over the steps: the schedule of Ideogram 4."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from inline_core.errors import InvalidParam
from inline_core.sampling.sigmas.tables import FLUX_SIZE

# Source of all numbers: Ideogram4Pipeline of diffusers.  The logit of sigma stays between these.
_LOGITS: Final = (-7.5, 9.0)
_BASE_PIXELS: Final = 512 * 512
_NORMAL: Final = NormalDist()


def resolution_mu(width: int, height: int, base: float = 0.0) -> float:
    """Mu for a picture of `width` x `height` pixels; `base` is that of 512 x 512."""
    return base + 0.5 * math.log(width * height / _BASE_PIXELS)


@dataclass(frozen=True, slots=True)
class LogitNormalTable:
    """A flow model with sigma(t) = expit(mu + spread * probit(t)), t in 0..1.

    It has `size` entries.
    """

    mu: float
    spread: float = 1.5
    size: int = FLUX_SIZE

    @property
    def flow(self) -> bool:
        """True."""
        return True

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> float:
        if not -self.size <= index < self.size:
            message = f"sigma {index} of {self.size}"
            raise IndexError(message)
        return self.sigma((index % self.size + 1) / self.size)

    @property
    def smallest(self) -> float:
        """The first sigma of the table."""
        return self[0]

    @property
    def largest(self) -> float:
        """The last sigma of the table: a hair below 1."""
        return self[-1]

    def sigma(self, timestep: float) -> float:
        """Sigma at `timestep` in 0..1."""
        least, most = _LOGITS
        if timestep <= 0 or timestep >= 1:
            return _expit(most if timestep >= 1 else least)
        logit = self.mu + self.spread * _NORMAL.inv_cdf(timestep)
        return _expit(min(max(logit, least), most))

    def timestep(self, sigma: float) -> float:
        """The share of the schedule at `sigma`: the reverse of `sigma`."""
        if sigma <= 0 or sigma >= 1:
            return 1.0 if sigma >= 1 else 0.0
        return _NORMAL.cdf((math.log(sigma / (1 - sigma)) - self.mu) / self.spread)

    def sigma_at(self, percent: float) -> float:
        """Sigma when `percent` (0..1) of the sampling is done: the top at 0, 0 at 1."""
        return 0.0 if percent >= 1 else self.sigma(1 - max(percent, 0.0))


def ideogram4(
    steps: int, width: int, height: int, mu: float = 0.0, std: float = 1.75
) -> tuple[float, ...]:
    """Ideogram 4's sigmas for a picture of `width` x `height` pixels.

    Raises: InvalidParam for steps below 1 or an `std` of 0 or less.
    """
    for name, value, good in (("steps", steps, steps >= 1), ("std", std, std > 0)):
        if not good:
            message = f"{name} is {value}: it must be above 0"
            raise InvalidParam(message, param=name)
    table = LogitNormalTable(resolution_mu(width, height, mu), std)
    return (*(table.sigma(1 - step / steps) for step in range(steps)), 0.0)


def _expit(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value))
