"""Solvers of one estimate a step and no memory: Euler, its ancestral form, DDPM and LCM.

A flow and an eps model share dx/dsigma = (x - denoised) / sigma, which Euler's step solves exactly
for a constant estimate.  `pp` makes the CFG++ form of a solver.
"""

from __future__ import annotations

from itertools import pairwise

from inline_core.sampling.solvers.base import Query, Steps, Trajectory
from inline_core.sampling.solvers.process import alpha, ancestral, renoised, reverse_leg


def euler(start: Trajectory, pp: bool = False) -> Steps:
    """Euler's method (Karras et al. 2022, algorithm 1 without its correction); DDIM with eta 0."""
    x = start.latents
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        estimate = yield Query(x, sigma, step)
        if pp:
            x = renoised(x, estimate, sigma, start.flow)
        x = estimate.denoised + (following / sigma) * (x - estimate.denoised)
    return x


def euler_a(
    start: Trajectory, pp: bool = False, *, eta: float = 1.0, s_noise: float = 1.0
) -> Steps:
    """Ancestral Euler: step below the target, then add noise back up to it.

    With `eta` 1 and an eps model this is DDPM's posterior step (Ho et al. 2020, algorithm 2).
    """
    x = start.latents
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        estimate = yield Query(x, sigma, step)
        if following == 0:
            return estimate.denoised
        if pp:
            x = renoised(x, estimate, sigma, start.flow)
        down, scale, spread = ancestral(sigma, following, eta, start.flow)
        x = scale * (estimate.denoised + (down / sigma) * (x - estimate.denoised))
        if spread > 0:
            x = x + s_noise * spread * start.noise()
    return x


def ddpm(start: Trajectory) -> Steps:
    """The posterior of each step (Ho et al. 2020, algorithm 2), for a flow in its own alphas."""
    x = start.latents
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        denoised = (yield Query(x, sigma, step)).denoised
        if following == 0:
            return denoised
        keep, pull, spread = reverse_leg(sigma, following, 1.0, start.flow)
        x = keep * x + pull * denoised + spread * start.noise()
    return x


def lcm(start: Trajectory) -> Steps:
    """Take the estimate and noise it anew (Song et al. 2023, arXiv 2303.01469, algorithm 1).

    It is meant for consistency models (LCM: Luo et al. 2023, arXiv 2310.04378); with any other the
    marginals are not kept.
    """
    x = start.latents
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        x = (yield Query(x, sigma, step)).denoised
        if following > 0:
            x = alpha(following, start.flow) * x + following * start.noise()
    return x
