"""Step rules: how latents move from one sigma to the next.

A solver is a generator.  It yields a `Query` for each estimate of the clean latents it needs, is
sent that estimate, and returns the final latents.  Its local variables are the state of one job, so
jobs with different solvers, steps and sigmas can share every forward pass.  All solvers integrate
dx/dsigma = (x - denoised) / sigma, which holds for flow models as well as for sigma-scaled noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from inline_core.errors import InvalidParam

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A wish for the denoised estimate at `latents` and `sigma`; `step` counts from 0."""

    latents: Tensor
    sigma: float
    step: int


Noise = Callable[[], "Tensor"]
Steps = Generator[Query, "Tensor", "Tensor"]
Solver = Callable[["Tensor", Sequence[float], Noise], Steps]


def euler(x: Tensor, sigmas: Sequence[float], noise: Noise) -> Steps:
    """Euler's method (Karras et al. 2022, algorithm 1 without churn)."""
    del noise
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised = yield Query(x, sigma, step)
        x = x + (following - sigma) * ((x - denoised) / sigma)
    return x


def euler_a(x: Tensor, sigmas: Sequence[float], noise: Noise) -> Steps:
    """Ancestral Euler for flow models: step below the target, then add noise back up to it.

    The fresh noise keeps the marginal x = (1 - sigma) x0 + sigma n: the signal is scaled by the
    ratio of the (1 - sigma), the variances add up.
    """
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised = yield Query(x, sigma, step)
        if following == 0:
            x = denoised
            continue
        below = following * following / sigma
        x = denoised + (below / sigma) * (x - denoised)
        scale = (1 - following) / (1 - below)
        spread = math.sqrt(max(following**2 - (scale * below) ** 2, 0.0))
        x = scale * x + spread * noise()
    return x


def heun(x: Tensor, sigmas: Sequence[float], noise: Noise) -> Steps:
    """Heun's method: two estimates a step, one for the last (Karras et al. 2022, algorithm 1)."""
    del noise
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised = yield Query(x, sigma, step)
        slope = (x - denoised) / sigma
        ahead = x + (following - sigma) * slope
        if following > 0:
            denoised = yield Query(ahead, following, step)
            slope = (slope + (ahead - denoised) / following) / 2
            ahead = x + (following - sigma) * slope
        x = ahead
    return x


def dpmpp_2m(x: Tensor, sigmas: Sequence[float], noise: Noise) -> Steps:
    """DPM-Solver++(2M) with lambda = -log sigma (Lu et al. 2022, algorithm 2)."""
    del noise
    before: Tensor | None = None
    last_width = 0.0
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised = yield Query(x, sigma, step)
        target = denoised
        if following > 0:
            width = math.log(sigma / following)
            if before is not None:
                weight = width / (2 * last_width)
                target = (1 + weight) * denoised - weight * before
            last_width = width
        x = (following / sigma) * x + (1 - following / sigma) * target
        before = denoised
    return x


SOLVERS: Final[Mapping[str, Solver]] = MappingProxyType(
    {"euler": euler, "euler_a": euler_a, "heun": heun, "dpmpp_2m": dpmpp_2m}
)
# The names of ComfyUI for the same rules.
ALIASES: Final[Mapping[str, str]] = MappingProxyType({"euler_ancestral": "euler_a"})


def solver_named(name: str) -> Solver:
    """The solver `name`.  Raises: InvalidParam, listing the valid names."""
    solver = SOLVERS.get(ALIASES.get(name, name))
    if solver is None:
        message = f"unknown sampler {name!r}: use one of {', '.join(SOLVERS)}"
        raise InvalidParam(message, param="sampler")
    return solver
