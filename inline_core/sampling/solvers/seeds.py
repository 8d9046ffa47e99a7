"""SEEDS: exponential Runge-Kutta solvers for the reverse SDE, and exponential Heun.

Gonzalez et al. 2023, arXiv 2305.14267; with `eta` 0 they are exponential
Runge-Kutta methods for the ODE (Hochbruck and Ostermann 2005).  The stages share one noise path.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from inline_core.sampling.solvers.base import Query, Steps, Trajectory, checked
from inline_core.sampling.solvers.process import alpha, log_snr, reverse_leg, sigma_between

if TYPE_CHECKING:
    from torch import Tensor


class _Step:
    """The SDE from `sigma` on, solved to several points of one step along one noise path."""

    def __init__(self, start: Trajectory, sigma: float, eta: float, s_noise: float) -> None:
        self._start, self._sigma, self._eta, self._s_noise = start, sigma, eta, s_noise
        self._noise: Tensor | None = None
        self._reached = sigma

    def rate(self, following: float) -> float:
        """(1 + eta) h for the width h of `lambda` up to `following`."""
        flow = self._start.flow
        return (1 + self._eta) * (log_snr(following, flow) - log_snr(self._sigma, flow))

    def to(self, following: float, x: Tensor, denoised: Tensor, change: Tensor | None) -> Tensor:
        """Go from the step's first `x` to `following`, whose noise is added to that so far."""
        flow = self._start.flow
        keep, pull, _ = reverse_leg(self._sigma, following, self._eta, flow)
        x = keep * x + pull * denoised
        if change is not None:
            x = x + alpha(following, flow) * change
        if self._eta <= 0:
            return x
        carried, _, spread = reverse_leg(self._reached, following, self._eta, flow)
        fresh = self._s_noise * spread * self._start.noise()
        self._noise = fresh if self._noise is None else carried * self._noise + fresh
        self._reached = following
        return x + self._noise


def seeds_2(
    start: Trajectory,
    *,
    eta: float = 1.0,
    s_noise: float = 1.0,
    r: float = 0.5,
    solver_type: str = "phi_1",
) -> Steps:
    """SEEDS-2: one inner estimate at `r` of the step.

    `phi_1` holds the estimate at its value in the middle, `phi_2` integrates its change exactly.
    """
    exact = checked("solver_type", solver_type, ("phi_1", "phi_2")) == "phi_2"
    x = start.latents
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        denoised = (yield Query(x, sigma, step)).denoised
        if following == 0:
            return denoised
        run = _Step(start, sigma, eta, s_noise)
        middle = sigma_between(sigma, following, r, start.flow)
        halfway = run.to(middle, x, denoised, None)
        later = (yield Query(halfway, middle, step)).denoised
        rate = run.rate(following)
        part = _phi_2(rate) / r if exact else -math.expm1(-rate) / (2 * r)
        x = run.to(following, x, denoised, part * (later - denoised))
    return x


def seeds_3(
    start: Trajectory,
    *,
    eta: float = 1.0,
    s_noise: float = 1.0,
    r_1: float = 1 / 3,
    r_2: float = 2 / 3,
) -> Steps:
    """SEEDS-3: inner estimates at `r_1` and `r_2` of the step."""
    x = start.latents
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        denoised = (yield Query(x, sigma, step)).denoised
        if following == 0:
            return denoised
        run = _Step(start, sigma, eta, s_noise)
        first = sigma_between(sigma, following, r_1, start.flow)
        second = sigma_between(sigma, following, r_2, start.flow)
        inner = run.to(first, x, denoised, None)
        later = (yield Query(inner, first, step)).denoised
        part = r_2 / r_1 * _phi_2(run.rate(second))
        inner = run.to(second, x, denoised, part * (later - denoised))
        later = (yield Query(inner, second, step)).denoised
        part = _phi_2(run.rate(following)) / r_2
        x = run.to(following, x, denoised, part * (later - denoised))
    return x


def exp_heun_2_x0(start: Trajectory, *, solver_type: str = "phi_2") -> Steps:
    """Exponential Heun in the estimate: `seeds_2` for the ODE with the inner point at the end."""
    return seeds_2(start, eta=0.0, r=1.0, solver_type=solver_type)


def exp_heun_2_x0_sde(
    start: Trajectory, *, eta: float = 1.0, s_noise: float = 1.0, solver_type: str = "phi_2"
) -> Steps:
    """Exponential Heun for the reverse SDE."""
    return seeds_2(start, eta=eta, s_noise=s_noise, r=1.0, solver_type=solver_type)


def _phi_2(rate: float) -> float:
    """Integral of rate exp(-rate (1 - u)) u over 0..1."""
    return 1 + math.expm1(-rate) / rate
