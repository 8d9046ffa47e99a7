"""Noise schedules: pure functions from a step count to sigmas, for flow-matching models.

Names and values are ComfyUI's (checked against test vectors).  Every function gets the table of
the model's 1000 sigmas in ascending order and gives `steps` falling sigmas; 0 is appended by
`sigmas_for`.  A flow model with shift a has sigma(t) = a t / (1 + (a - 1) t), t in 0..1
(Esser et al. 2024, "Scaling Rectified Flow Transformers", section 5.3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from inline_core.errors import InvalidParam

TABLE_SIZE: Final = 1000
FULL_DENOISE: Final = 0.9999


@dataclass(frozen=True, slots=True)
class FlowTable:
    """The sigmas of a flow model with the given shift."""

    shift: float

    def sigma(self, time: float) -> float:
        """Sigma at `time` in 0..1."""
        return self.shift * time / (1 + (self.shift - 1) * time)

    def __getitem__(self, index: int) -> float:
        """Sigma number `index` of 0..999, ascending; negative counts from the end."""
        return self.sigma((index % TABLE_SIZE + 1) / TABLE_SIZE)

    @property
    def smallest(self) -> float:
        """The first sigma of the table."""
        return self[0]

    @property
    def largest(self) -> float:
        """The last sigma of the table, 1 for flow models."""
        return self[-1]


Schedule = Callable[[int, FlowTable], list[float]]


def simple(steps: int, table: FlowTable) -> list[float]:
    """Every n-th sigma of the table, from the top."""
    return [table[-(1 + int(i * TABLE_SIZE / steps))] for i in range(steps)]


def normal(steps: int, table: FlowTable) -> list[float]:
    """Evenly spaced times between the largest and the smallest sigma, both ends included."""
    return [table.sigma(time) for time in _line(table.largest, table.smallest, steps)]


def sgm_uniform(steps: int, table: FlowTable) -> list[float]:
    """As `normal` with one point more, the last one left out."""
    return [table.sigma(time) for time in _line(table.largest, table.smallest, steps + 1)][:-1]


def ddim_uniform(steps: int, table: FlowTable) -> list[float]:
    """Every n-th sigma from the bottom; it may give more than `steps` and starts below the top."""
    stride = max(TABLE_SIZE // steps, 1)
    return [table[index] for index in range(1, TABLE_SIZE, stride)][::-1]


def karras(steps: int, table: FlowTable, rho: float = 7.0) -> list[float]:
    """Karras et al. 2022, equation 5, with rho 7."""
    low, high = table.smallest ** (1 / rho), table.largest ** (1 / rho)
    return [value**rho for value in _line(high, low, steps)]


def exponential(steps: int, table: FlowTable) -> list[float]:
    """Evenly spaced in the logarithm of sigma."""
    return [math.exp(v) for v in _line(math.log(table.largest), math.log(table.smallest), steps)]


def beta(steps: int, table: FlowTable, alpha: float = 0.6) -> list[float]:
    """Quantiles of Beta(0.6, 0.6) as places in the table (Lee et al. 2024), without repeats."""
    sigmas: list[float] = []
    last = -1
    for i in range(steps):
        index = round(beta_quantile(1 - i / steps, alpha) * (TABLE_SIZE - 1))
        if index != last:
            sigmas.append(table[index])
        last = index
    return sigmas


def linear_quadratic(steps: int, table: FlowTable) -> list[float]:
    """First half linear down to 1 - 0.025, second half quadratic (from the Mochi paper's code)."""
    threshold = 0.025
    if steps == 1:
        return [table.largest]
    half = steps // 2
    rest = steps - half
    slope = threshold / half
    difference = half - threshold * steps
    a = difference / (half * rest**2)
    b = slope - 2 * difference / rest**2
    c = a * half**2
    noise = [i * slope for i in range(half)] + [a * i * i + b * i + c for i in range(half, steps)]
    return [(1 - value) * table.largest for value in noise]


def kl_optimal(steps: int, table: FlowTable) -> list[float]:
    """Tangent of evenly spaced arc tangents ("Align Your Steps", Sabour et al. 2024, eq. 16)."""
    return [math.tan(v) for v in _line(math.atan(table.largest), math.atan(table.smallest), steps)]


SCHEDULES: Final[Mapping[str, Schedule]] = MappingProxyType(
    {
        "simple": simple,
        "sgm_uniform": sgm_uniform,
        "karras": karras,
        "exponential": exponential,
        "ddim_uniform": ddim_uniform,
        "beta": beta,
        "normal": normal,
        "linear_quadratic": linear_quadratic,
        "kl_optimal": kl_optimal,
    }
)


def sigmas_for(scheduler: str, steps: int, shift: float, denoise: float = 1.0) -> tuple[float, ...]:
    """The sigmas of one job, falling, ending in 0; empty when `denoise` is 0 or less.

    `denoise` below 1 takes the last part of a longer schedule: int(steps / denoise) steps are laid
    out, and the last `steps` of them are run.
    Raises: InvalidParam for an unknown name (it lists the valid ones) or steps below 1.
    """
    schedule = SCHEDULES.get(scheduler)
    if schedule is None:
        message = f"unknown scheduler {scheduler!r}: use one of {', '.join(SCHEDULES)}"
        raise InvalidParam(message, param="scheduler")
    if steps < 1:
        message = f"steps is {steps}: at least 1 is needed"
        raise InvalidParam(message, param="steps")
    if denoise <= 0:
        return ()
    table = FlowTable(shift)
    if denoise > FULL_DENOISE:
        return (*schedule(steps, table), 0.0)
    return (*schedule(int(steps / denoise), table), 0.0)[-(steps + 1) :]


def _line(start: float, end: float, count: int) -> list[float]:
    if count == 1:
        return [start]
    return [start + (end - start) * i / (count - 1) for i in range(count)]


@lru_cache(maxsize=4096)
def beta_quantile(probability: float, alpha: float) -> float:
    """Quantile of the symmetric Beta(alpha, alpha) distribution, by bisection."""
    if probability <= 0 or probability >= 1:
        return min(max(probability, 0.0), 1.0)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _beta_cdf(middle, alpha) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _beta_cdf(x: float, alpha: float) -> float:
    """Regularised incomplete beta function I_x(alpha, alpha)."""
    if x > 0.5:  # noqa: PLR2004 - symmetry, so that the series converges fast
        return 1 - _beta_cdf(1 - x, alpha)
    if x <= 0:
        return 0.0
    # I_x(a, b) = x^a (1-x)^b / (a B(a, b)) * sum of the series of DLMF 8.17.8.
    log_front = (
        alpha * math.log(x)
        + alpha * math.log1p(-x)
        - math.log(alpha)
        - (2 * math.lgamma(alpha) - math.lgamma(2 * alpha))
    )
    term, total, n = 1.0, 1.0, 0
    while term > total * 1e-16:
        term *= (2 * alpha + n) / (alpha + 1 + n) * x
        total += term
        n += 1
    return math.exp(log_front) * total
