"""DPM-Solver++ for the reverse SDE (Lu et al. 2022, arXiv 2211.01095); `eta` 0 is the ODE.

The steps are in `lambda` of the process.  A flow's first sigma of 1 has `lambda` -infinity: it is
taken as that of about 1 - 1e-4.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from inline_core.sampling.solvers.base import Query, Steps, Trajectory, checked
from inline_core.sampling.solvers.process import (
    alpha,
    ancestral,
    log_snr,
    ratio,
    reverse_leg,
    sigma_between,
)
from inline_core.sampling.solvers.weights import exponential_weights

if TYPE_CHECKING:
    from torch import Tensor


def dpmpp_sde(
    start: Trajectory, *, eta: float = 1.0, s_noise: float = 1.0, r: float = 0.5
) -> Steps:
    """DPM-Solver++ (SDE), single-step: an estimate within each step (Lu et al. 2022).

    The noise up to the inner point and the noise of the whole step are increments of one path.
    """
    x = start.latents
    flow = start.flow
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        denoised = (yield Query(x, sigma, step)).denoised
        if following == 0:
            return denoised
        middle = sigma_between(sigma, following, r, flow)
        first = start.noise() if eta > 0 else None
        inner = _ancestral_leg(x, denoised, sigma, middle, eta, flow, first, s_noise)
        later = (yield Query(inner, middle, step)).denoised
        target = denoised + (later - denoised) / (2 * r)
        whole = None
        if first is not None:
            part = _shared(sigma, middle, following, flow)
            whole = part * first + math.sqrt(1 - part**2) * start.noise()
        x = _ancestral_leg(x, target, sigma, following, eta, flow, whole, s_noise)
    return x


def _ancestral_leg(
    x: Tensor,
    denoised: Tensor,
    sigma: float,
    following: float,
    eta: float,
    flow: bool,
    noise: Tensor | None,
    s_noise: float,
) -> Tensor:
    """Step with the ancestral split of x / alpha, whose noise is `ratio`."""
    split = ancestral(ratio(sigma, flow), ratio(following, flow), eta, flow=False)
    outer = alpha(following, flow)
    keep = outer * split.down / sigma
    x = keep * x + (outer - keep * alpha(sigma, flow)) * denoised
    return x if noise is None else x + s_noise * outer * split.spread * noise


def _shared(sigma: float, middle: float, following: float, flow: bool) -> float:
    """Correlation of the noise up to `middle` with that of the whole step (Ito's isometry)."""
    whole, inner, last = ratio(sigma, flow), ratio(middle, flow), ratio(following, flow)
    left = 1 - (inner / whole) ** 2
    return min((last / inner) * math.sqrt(left / (1 - (last / whole) ** 2)), 1.0)


def dpmpp_2m_sde(
    start: Trajectory, *, eta: float = 1.0, s_noise: float = 1.0, solver_type: str = "midpoint"
) -> Steps:
    """SDE-DPM-Solver++(2M) (Lu et al. 2022), in its `midpoint` or `heun` form.

    The forms differ in how the change of the estimate is integrated: at the midpoint or exactly.
    """
    exact = checked("solver_type", solver_type, ("midpoint", "heun")) == "heun"
    x = start.latents
    before: Tensor | None = None
    last_width = 0.0
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        denoised = (yield Query(x, sigma, step)).denoised
        if following == 0:
            return denoised
        keep, pull, spread = reverse_leg(sigma, following, eta, start.flow)
        width = log_snr(following, start.flow) - log_snr(sigma, start.flow)
        x = keep * x + pull * denoised
        if before is not None:
            rate = (1 + eta) * width
            mean = 1 + math.expm1(-rate) / rate if exact else -math.expm1(-rate) / 2
            change = alpha(following, start.flow) * mean * width / last_width
            x = x + change * (denoised - before)
        before, last_width = denoised, width
        if spread > 0:
            x = x + s_noise * spread * start.noise()
    return x


def dpmpp_2m_sde_heun(start: Trajectory, *, eta: float = 1.0, s_noise: float = 1.0) -> Steps:
    """`dpmpp_2m_sde` with the change of the estimate integrated exactly."""
    return dpmpp_2m_sde(start, eta=eta, s_noise=s_noise, solver_type="heun")


def dpmpp_3m_sde(start: Trajectory, *, eta: float = 1.0, s_noise: float = 1.0) -> Steps:
    """The three-estimate form of SDE-DPM-Solver++ (Crowson 2023, k-diffusion).

    The weights are the exact integrals of the polynomial in `lambda` through the last estimates.
    """
    x = start.latents
    past: list[tuple[float, Tensor]] = []  # (lambda, estimate), newest first
    for step, (sigma, following) in enumerate(pairwise(start.sigmas)):
        denoised = (yield Query(x, sigma, step)).denoised
        if following == 0:
            return denoised
        past = [(log_snr(sigma, start.flow), denoised), *past[:2]]
        keep, pull, spread = reverse_leg(sigma, following, eta, start.flow)
        nodes = [place for place, _ in past]
        parts = exponential_weights(nodes, nodes[0], log_snr(following, start.flow), 1 + eta)
        x = keep * x + pull * denoised
        for part, (_, older) in zip(parts[1:], past[1:], strict=True):
            x = x + alpha(following, start.flow) * part * (older - denoised)
        if spread > 0:
            x = x + s_noise * spread * start.noise()
    return x
