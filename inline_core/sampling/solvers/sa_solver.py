"""SA-Solver: stochastic Adams methods with a predictor and a corrector (Xue et al. 2023)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from inline_core.sampling.solvers.base import Query, Steps, Trajectory
from inline_core.sampling.solvers.process import alpha, log_snr, reverse_leg
from inline_core.sampling.solvers.weights import exponential_weights

if TYPE_CHECKING:
    from torch import Tensor


def sa_solver(
    start: Trajectory,
    *,
    eta: float = 1.0,
    s_noise: float = 1.0,
    predictor_order: int = 3,
    corrector_order: int = 4,
    noise_from: float = 0.2,
    noise_to: float = 0.8,
) -> Steps:
    """SA-Solver in PEC mode (Xue et al. 2023), tau^2 = `eta` in a part of the steps.

    A step has noise if its number is from `noise_from` up to `noise_to` of all steps.
    """
    return _sa_solver(
        start, eta, s_noise, (predictor_order, corrector_order), (noise_from, noise_to), False
    )


def sa_solver_pece(
    start: Trajectory,
    *,
    eta: float = 1.0,
    s_noise: float = 1.0,
    predictor_order: int = 3,
    corrector_order: int = 4,
    noise_from: float = 0.2,
    noise_to: float = 0.8,
) -> Steps:
    """SA-Solver that asks for an estimate again after each correction (PECE mode)."""
    return _sa_solver(
        start, eta, s_noise, (predictor_order, corrector_order), (noise_from, noise_to), True
    )


def _sa_solver(
    start: Trajectory,
    eta: float,
    s_noise: float,
    orders: tuple[int, int],
    window: tuple[float, float],
    again: bool,
) -> Steps:
    sigmas, flow = start.sigmas, start.flow
    predictor, corrector = (max(order, 0) for order in orders)
    x = before = start.latents
    noise: Tensor | None = None  # that of the step last predicted, which the corrector keeps
    past: list[tuple[float, Tensor]] = []  # (lambda, estimate), newest first
    strength = 0.0
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised = (yield Query(x, sigma, step)).denoised
        if following == 0 and not (again and step > 0 and corrector):
            return denoised
        known = [(log_snr(sigma, flow), denoised), *past]
        if step > 0 and corrector:
            x = _adams(before, known[:corrector], (sigmas[step - 1], sigma), strength, flow)
            x = x if noise is None else x + noise
            if again:
                denoised = (yield Query(x, sigma, step)).denoised
                known[0] = (known[0][0], denoised)
        if following == 0:
            return denoised
        past = known[: max(predictor, corrector, 1)]
        count = len(sigmas) - 1
        strength = eta if window[0] * count <= step < window[1] * count else 0.0
        before = x
        x = _adams(x, past[: max(predictor, 1)], (sigma, following), strength, flow)
        spread = reverse_leg(sigma, following, strength, flow).spread
        noise = s_noise * spread * start.noise() if spread > 0 else None
        x = x if noise is None else x + noise
    return x


def _adams(
    x: Tensor,
    past: list[tuple[float, Tensor]],
    ends: tuple[float, float],
    strength: float,
    flow: bool,
) -> Tensor:
    """One step without its noise, the estimate being the polynomial through `past`."""
    sigma, following = ends
    keep, pull, _ = reverse_leg(sigma, following, strength, flow)
    nodes = [node for node, _ in past]
    parts = exponential_weights(nodes, log_snr(sigma, flow), log_snr(following, flow), 1 + strength)
    result = keep * x + pull * past[0][1]
    for part, (_, estimate) in zip(parts[1:], past[1:], strict=True):
        result = result + alpha(following, flow) * part * (estimate - past[0][1])
    return result
