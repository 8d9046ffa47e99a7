"""Curves between two numbers, as the schedules use them."""

from __future__ import annotations

import bisect
import math
from functools import lru_cache
from typing import Final

_SERIES_PRECISION: Final = 1e-16
_MIDDLE: Final = 0.5


def line(start: float, end: float, count: int) -> list[float]:
    """`count` evenly spaced numbers from `start` to `end`; only `start` when `count` is 1."""
    if count == 1:
        return [start]
    return [start + (end - start) * i / (count - 1) for i in range(count)]


def karras(steps: int, high: float, low: float, rho: float = 7.0) -> list[float]:
    """`steps` sigmas from `high` to `low`, evenly spaced in sigma^(1/rho); all three above 0.

    Karras et al. 2022, "Elucidating the Design Space of Diffusion-Based Generative Models",
    equation 5.
    """
    return [value**rho for value in line(high ** (1 / rho), low ** (1 / rho), steps)]


def exponential(steps: int, high: float, low: float) -> list[float]:
    """`steps` sigmas from `high` to `low`, evenly spaced in their logarithm; both above 0."""
    return [math.exp(value) for value in line(math.log(high), math.log(low), steps)]


def beta_place(probability: float, alpha: float, beta: float, size: int) -> int:
    """The quantile of Beta(alpha, beta) as a place in a table of `size`: 0 to size - 1.

    It is the quantile times size - 1, rounded (a half up); found by bisection over the borders.
    `probability` is in 0..1, `alpha` and `beta` are above 0.
    """
    return bisect.bisect_right(
        range(size - 1),
        probability,
        key=lambda place: beta_cdf((place + 0.5) / (size - 1), alpha, beta),
    )


@lru_cache(maxsize=65536)
def beta_cdf(x: float, alpha: float, beta: float) -> float:
    """Regularised incomplete beta function I_x(alpha, beta), x in 0..1 (series of DLMF 8.17.8)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x == _MIDDLE and alpha == beta:
        return _MIDDLE
    if x > _MIDDLE:  # so that the series converges fast
        return 1 - beta_cdf(1 - x, beta, alpha)
    log_front = (
        alpha * math.log(x)
        + beta * math.log1p(-x)
        - math.log(alpha)
        - (math.lgamma(alpha) + math.lgamma(beta) - math.lgamma(alpha + beta))
    )
    term, total, n = 1.0, 1.0, 0
    while term > total * _SERIES_PRECISION:
        term *= (alpha + beta + n) / (alpha + 1 + n) * x
        total += term
        n += 1
    return math.exp(log_front) * total
