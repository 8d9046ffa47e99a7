"""Solvers in sigma with several estimates a step and no memory of earlier steps."""

from __future__ import annotations

import math
from itertools import pairwise

from inline_core.sampling.solvers.base import Query, Steps, Trajectory
from inline_core.sampling.solvers.process import ancestral


def heun(start: Trajectory) -> Steps:
    """Heun's method: two estimates a step, one for the last (Karras et al. 2022, algorithm 1)."""
    x = start.latents
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        denoised = (yield Query(x, sigma, step)).denoised
        if following == 0:
            return denoised
        slope = (x - denoised) / sigma
        ahead = x + (following - sigma) * slope
        denoised = (yield Query(ahead, following, step)).denoised
        x = x + (following - sigma) / 2 * (slope + (ahead - denoised) / following)
    return x


def heunpp2(start: Trajectory) -> Steps:
    """Heun++: slopes at this and the next two sigmas, weighted by sigma over the first sigma.

    A rule of ComfyUI without a paper.  Where fewer sigmas above 0 are left, it uses fewer slopes.
    The weights make it a first-order method; only late steps lean on the first slope.
    """
    x = start.latents
    sigmas = start.sigmas
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        # Up to two sigmas to look ahead to, but never the last one of the schedule.
        ahead = sigmas[step + 1 : min(step + 3, len(sigmas) - 1)]
        slopes = []
        place, at = x, sigma
        for target in (*ahead, following):
            denoised = (yield Query(place, at, step)).denoised
            slopes.append((place - denoised) / at)
            place, at = place + (target - at) * slopes[-1], target
        if following == 0:
            return denoised
        parts = [target / ((len(ahead) + 1) * sigmas[0]) for target in ahead]
        slope = (1 - sum(parts)) * slopes[0]
        for part, later in zip(parts, slopes[1:], strict=True):
            slope = slope + part * later
        x = x + (following - sigma) * slope
    return x


def dpm_2(start: Trajectory) -> Steps:
    """DPM-Solver-2, a midpoint step in log sigma (Lu et al. 2022, 2206.00927, algorithm 1)."""
    x = start.latents
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        denoised = (yield Query(x, sigma, step)).denoised
        if following == 0:
            return denoised
        middle = math.sqrt(sigma * following)
        halfway = denoised + (middle / sigma) * (x - denoised)
        denoised = (yield Query(halfway, middle, step)).denoised
        x = x + (following - sigma) / middle * (halfway - denoised)
    return x


def dpm_2_ancestral(start: Trajectory, *, eta: float = 1.0, s_noise: float = 1.0) -> Steps:
    """`dpm_2` to a sigma below the target, then noise back up to it (Crowson 2022, k-diffusion)."""
    x = start.latents
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        denoised = (yield Query(x, sigma, step)).denoised
        if following == 0:
            return denoised
        down, scale, spread = ancestral(sigma, following, eta, start.flow)
        if down > 0:
            middle = math.sqrt(sigma * down)
            halfway = denoised + (middle / sigma) * (x - denoised)
            denoised = (yield Query(halfway, middle, step)).denoised
            x = x + (down - sigma) / middle * (halfway - denoised)
        else:
            x = denoised
        x = scale * x
        if spread > 0:
            x = x + s_noise * spread * start.noise()
    return x
