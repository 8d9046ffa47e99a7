"""Exponential solvers in the estimate: DPM-Solver++ and RES, with their ancestral forms.

The multistep ones take lambda = -log sigma for both processes, since dx/dsigma is the same.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from inline_core.sampling.solvers.base import Query, Steps, Trajectory
from inline_core.sampling.solvers.process import ancestral, renoised, sigma_between
from inline_core.sampling.solvers.weights import exponential_weights

if TYPE_CHECKING:
    from torch import Tensor


def dpmpp_2m(start: Trajectory, pp: bool = False) -> Steps:
    """DPM-Solver++(2M) (Lu et al. 2022, arXiv 2211.01095, algorithm 2)."""
    x = start.latents
    before: Tensor | None = None
    last_width = 0.0
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        estimate = yield Query(x, sigma, step)
        if following == 0:
            return estimate.denoised
        if pp:
            x = renoised(x, estimate, sigma, start.flow)
        target = estimate.denoised
        width = math.log(sigma / following)
        if before is not None:
            weight = width / (2 * last_width)
            target = (1 + weight) * target - weight * before
        x = target + (following / sigma) * (x - target)
        before, last_width = estimate.denoised, width
    return x


def dpmpp_2s_ancestral(
    start: Trajectory, pp: bool = False, *, eta: float = 1.0, s_noise: float = 1.0
) -> Steps:
    """DPM-Solver++(2S) (Lu et al. 2022, algorithm 1, r = 1/2) to below the target, then noise.

    The midpoint is taken in `lambda` of the process.
    """
    x = start.latents
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        estimate = yield Query(x, sigma, step)
        if following == 0:
            return estimate.denoised
        if pp:
            x = renoised(x, estimate, sigma, start.flow)
        down, scale, spread = ancestral(sigma, following, eta, start.flow)
        target = estimate.denoised
        if down > 0:
            middle = sigma_between(sigma, down, 0.5, start.flow)
            halfway = target + (middle / sigma) * (x - target)
            target = (yield Query(halfway, middle, step)).denoised
        x = scale * (target + (down / sigma) * (x - target))
        if spread > 0:
            x = x + s_noise * spread * start.noise()
    return x


def res_multistep(start: Trajectory, pp: bool = False) -> Steps:
    """RES, two estimates of which one is new (Zhang et al. 2023, arXiv 2308.02157)."""
    return _res_multistep(start, pp, eta=0.0, s_noise=1.0)


def res_multistep_ancestral(
    start: Trajectory, pp: bool = False, *, eta: float = 1.0, s_noise: float = 1.0
) -> Steps:
    """`res_multistep` to a sigma below the target, then noise back up to it."""
    return _res_multistep(start, pp, eta, s_noise)


def _res_multistep(start: Trajectory, pp: bool, eta: float, s_noise: float) -> Steps:
    x = start.latents
    before: Tensor | None = None
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        estimate = yield Query(x, sigma, step)
        if following == 0:
            return estimate.denoised
        if pp:
            x = renoised(x, estimate, sigma, start.flow)
        down, scale, spread = ancestral(sigma, following, eta, start.flow)
        target = estimate.denoised
        if before is not None and down > 0:
            nodes = [-math.log(sigma), -math.log(start.sigmas[step - 1])]
            older = exponential_weights(nodes, nodes[0], -math.log(down))[1]
            target = target + older / (1 - down / sigma) * (before - target)
        x = scale * (target + (down / sigma) * (x - target))
        before = estimate.denoised
        if spread > 0:
            x = x + s_noise * spread * start.noise()
    return x
