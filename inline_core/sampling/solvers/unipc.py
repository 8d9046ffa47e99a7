"""UniPC: an exponential Adams predictor and corrector, one estimate a step.

The corrector takes a step again once the estimate at its end is there, without a new query.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from inline_core.sampling.solvers.base import Query, Steps, Trajectory
from inline_core.sampling.solvers.weights import exponential_weights

if TYPE_CHECKING:
    from torch import Tensor


def uni_pc(start: Trajectory, *, order: int = 3) -> Steps:
    """UniPC with B(h) = h (Zhao et al. 2023, arXiv 2302.04867)."""
    return _uni_pc(start, order, linear=True)


def uni_pc_bh2(start: Trajectory, *, order: int = 3) -> Steps:
    """UniPC with B(h) = exp(h) - 1."""
    return _uni_pc(start, order, linear=False)


def _uni_pc(start: Trajectory, order: int, linear: bool) -> Steps:
    """Predict with up to `order` estimates, correct with one more; lambda = -log sigma.

    If the schedule ends in 0 the order falls towards the end, and the last estimate corrects
    nothing, as in the authors' code.
    """
    sigmas = start.sigmas
    steps = len(sigmas) - 1
    order = max(min(order, steps - 1), 1)
    x = start.latents
    before = x  # corrected latents at the start of the step last predicted
    past: list[tuple[float, Tensor]] = []  # (lambda, estimate), newest first
    used = 0
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised = (yield Query(x, sigma, step)).denoised
        if following == 0:
            return denoised
        past = [(-math.log(sigma), denoised), *past[:order]]
        if step > 0:
            x = _uni_step(before, past[: used + 1], sigmas[step - 1], sigma, linear, new=True)
        left = steps - step if sigmas[-1] == 0 else order
        used = min(order, step + 1, left)
        before = x
        x = _uni_step(x, past[:used], sigma, following, linear, new=False)
    return x


def _uni_step(
    x: Tensor,
    past: list[tuple[float, Tensor]],
    sigma: float,
    following: float,
    linear: bool,
    new: bool,
) -> Tensor:
    """Step through the estimates `past`; with `new` the first of them belongs to `following`.

    With a full set of equations B(h) cancels out and the weights are those of the interpolating
    polynomial; for two estimates UniPC sets the one unknown to 1/2, where B(h) stays.
    """
    nodes = [node for node, _ in past]
    base = 1 if new else 0
    low, high = -math.log(sigma), -math.log(following)
    if len(past) == 2:  # noqa: PLR2004 - the simplified form
        scale = (high - low) if linear else -math.expm1(low - high)
        other = 1 - base
        parts = [0.0, 0.0]
        parts[other] = scale / 2 * (high - low) / (nodes[other] - low)
    else:
        parts = exponential_weights(nodes, low, high)
    target = past[base][1]
    result = target + (following / sigma) * (x - target)
    for place, (part, (_, estimate)) in enumerate(zip(parts, past, strict=True)):
        if place != base:
            result = result + part * (estimate - target)
    return result
