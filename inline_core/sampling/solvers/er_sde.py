"""ER-SDE-Solver (Cui et al. 2023, arXiv 2309.06169), in sigma / alpha for both processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from inline_core.sampling.solvers.base import Query, Steps, Trajectory, checked
from inline_core.sampling.solvers.process import alpha, ratio
from inline_core.sampling.solvers.weights import integral

if TYPE_CHECKING:
    from torch import Tensor

# The noise scale function of the ratio: how much of the old noise a step keeps.
_SCALES: Final[Mapping[str, Callable[[float, float], float]]] = MappingProxyType(
    {
        "er_sde": lambda noise, _: noise * (math.exp(noise**0.3) + 10),
        "reverse_sde": lambda noise, eta: noise ** (1 + eta),
        "ode": lambda noise, _: noise,
    }
)


def er_sde(
    start: Trajectory,
    *,
    s_noise: float = 1.0,
    max_stage: int = 3,
    solver_type: str = "er_sde",
    eta: float = 1.0,
) -> Steps:
    """ER-SDE-Solver-3 (Cui et al. 2023) with the noise scale function that the authors prefer.

    `solver_type` is the noise scale function: `er_sde`, `reverse_sde` (with `eta`) or `ode`.
    """
    x = start.latents
    past: list[tuple[float, Tensor]] = []  # (ratio, estimate), newest first

    shape = _SCALES[checked("solver_type", solver_type, _SCALES)]

    def scale(noise: float) -> float:
        return shape(noise, eta)

    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        denoised = (yield Query(x, sigma, step)).denoised
        if following == 0:
            return denoised
        here, there = ratio(sigma, start.flow), ratio(following, start.flow)
        past = [(here, denoised), *past[: max(max_stage, 1) - 1]]
        part = scale(there) / scale(here)
        outer = alpha(following, start.flow)
        keep = outer * part * here / sigma
        x = keep * x + (outer - keep * alpha(sigma, start.flow)) * denoised
        if len(past) > 1:
            x = x + outer * _change(past, here, there, scale)
        spread = there**2 - (here * part) ** 2
        if spread > there**2 * 1e-12:
            x = x + s_noise * outer * math.sqrt(spread) * start.noise()
    return x


def _change(
    past: list[tuple[float, Tensor]],
    here: float,
    there: float,
    scale: Callable[[float], float],
) -> Tensor:
    """The Taylor terms of the estimate : first and, if known, second."""
    # Integrals of (ratio - here)^k / scale, in the logarithm of the ratio, where they are smooth.
    low, high = math.log(there), math.log(here)
    flat = integral(lambda u: math.exp(u) / scale(math.exp(u)), low, high)
    (newest, denoised), (older, before) = past[:2]
    slope = (denoised - before) / (newest - older)
    change = (there - here + flat * scale(there)) * slope
    if len(past) > 2:  # noqa: PLR2004 - three estimates
        oldest, first = past[2]
        slope_before = (before - first) / (older - oldest)
        bend = 2 * (slope - slope_before) / (newest - oldest)
        tilted = integral(
            lambda u: (math.exp(u) - here) * math.exp(u) / scale(math.exp(u)), low, high
        )
        change = change + ((there - here) ** 2 / 2 + tilted * scale(there)) * bend
    return change
