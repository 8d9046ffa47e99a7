"""Linear multistep solvers in sigma: the slope (x - denoised) / sigma extrapolated from past ones.

They start with an Euler step, so on an even schedule the first step's error limits the result to
second order in the limit of many steps; the methods themselves have the order of their weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from inline_core.sampling.solvers.base import Query, Steps, Trajectory
from inline_core.sampling.solvers.process import renoised
from inline_core.sampling.solvers.weights import polynomial_weights

if TYPE_CHECKING:
    from torch import Tensor

# Adams-Bashforth weights for even steps, newest slope first (Hairer, Norsett and Wanner, III.1).
_EVEN: Final = (
    (1.0,),
    (3 / 2, -1 / 2),
    (23 / 12, -16 / 12, 5 / 12),
    (55 / 24, -59 / 24, 37 / 24, -9 / 24),
)
# Weights of the last slopes, newest first, from the sigmas they belong to and the next sigma.
Weights = Callable[[Sequence[float], float], Sequence[float]]


def lms(start: Trajectory, *, order: int = 4) -> Steps:
    """Adams-Bashforth in sigma for uneven steps (Hairer, Norsett and Wanner, III.5)."""
    return _multistep(start, order, _adams)


def ipndm(start: Trajectory, *, max_order: int = 4) -> Steps:
    """Adams-Bashforth with weights for even steps (Liu et al. 2022, arXiv 2202.09778).

    IPNDM leaves out PNDM's Runge-Kutta start (Zhang and Chen 2022, arXiv 2204.13902).  On an uneven
    schedule the weights do not fit and the order falls to 2 at best.
    """
    return _multistep(start, max_order, _even)


def ipndm_v(start: Trajectory, *, max_order: int = 4) -> Steps:
    """The iPNDM with weights for uneven steps: the exact Adams-Bashforth ones, as in `lms`."""
    return _multistep(start, max_order, _adams)


def deis(start: Trajectory, *, max_order: int = 3) -> Steps:
    """DEIS-tAB: the slope as a polynomial in VP time (Zhang and Chen 2022, arXiv 2204.13902).

    Time is sqrt(log(1 + sigma^2)), a VP schedule whose beta grows in proportion to time.
    """
    return _multistep(start, max_order, _in_time)


def gradient_estimation(start: Trajectory, pp: bool = False, *, ge_gamma: float = 2.0) -> Steps:
    """Gradient estimation (Permenter and Yuan 2024, arXiv 2306.04848).

    The slope becomes gamma times this one plus (1 - gamma) times the one before.
    """
    x = start.latents
    before: Tensor | None = None
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        estimate = yield Query(x, sigma, step)
        if following == 0:
            return estimate.denoised
        if pp:
            x = renoised(x, estimate, sigma, start.flow)
        slope = (x - estimate.denoised) / sigma
        x = x + (following - sigma) * slope
        if before is not None:
            x = x + (following - sigma) * (ge_gamma - 1) * (slope - before)
        before = slope
    return x


def _multistep(start: Trajectory, order: int, weights: Weights) -> Steps:
    x = start.latents
    slopes: list[Tensor] = []  # newest first
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        denoised = (yield Query(x, sigma, step)).denoised
        if following == 0:
            return denoised
        slopes = [(x - denoised) / sigma, *slopes[: max(order, 1) - 1]]
        nodes = [start.sigmas[step - back] for back in range(len(slopes))]
        for weight, slope in zip(weights(nodes, following), slopes, strict=True):
            x = x + weight * slope
    return x


def _adams(nodes: Sequence[float], following: float) -> list[float]:
    return polynomial_weights(nodes, nodes[0], following)


def _even(nodes: Sequence[float], following: float) -> list[float]:
    return [(following - nodes[0]) * weight for weight in _EVEN[len(nodes) - 1]]


def _in_time(nodes: Sequence[float], following: float) -> list[float]:
    times = [_time(node) for node in nodes]
    return polynomial_weights(times, times[0], _time(following), _sigma_per_time, panels=4)


def _time(sigma: float) -> float:
    return math.sqrt(math.log1p(sigma**2))


def _sigma_per_time(time: float) -> float:
    """Derivative of sigma = sqrt(exp(time^2) - 1); the times are above 0."""
    return time * math.exp(time**2) / math.sqrt(math.expm1(time**2))
