"""Weights and rules against exact integrals, where an order alone would not show a slip."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from measure_solvers import run
from torch import Tensor

from inline_core.sampling.solvers import SOLVERS, Trajectory
from inline_core.sampling.solvers.process import (
    ancestral,
    log_snr,
    ratio,
    reverse_leg,
    sigma_between,
)
from inline_core.sampling.solvers.weights import exponential_weights, integral, polynomial_weights

FLOWS = pytest.mark.parametrize("flow", [True, False], ids=["flow", "eps"])


def test_integrals() -> None:
    assert integral(lambda u: u**9, 0, 2, panels=1) == pytest.approx(2**10 / 10, rel=1e-13)
    assert integral(math.exp, -1, 3) == pytest.approx(math.exp(3) - math.exp(-1), rel=1e-13)


def test_weights_of_even_steps_are_those_of_adams_and_bashforth() -> None:
    weights = polynomial_weights([3, 2, 1, 0], 3, 4)
    assert weights == pytest.approx([55 / 24, -59 / 24, 37 / 24, -9 / 24])


@pytest.mark.parametrize("rate", [1.0, 2.0])
def test_exponential_weights_integrate_a_change_exactly(rate: float) -> None:
    width = 0.7
    newest, older = exponential_weights([0.0, -0.5], 0.0, width, rate)
    gone = -math.expm1(-rate * width)
    assert newest + older == pytest.approx(gone, rel=1e-12)
    # Integral of rate exp(-rate (h - u)) u over 0..h.
    assert older * -0.5 == pytest.approx(width - gone / rate, rel=1e-12)


@pytest.mark.parametrize("name", ["lms", "ipndm", "ipndm_v"])
def test_a_cubic_slope_is_integrated_exactly(name: str) -> None:
    sigmas = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5]
    if name != "ipndm":
        sigmas = [1.0, 0.9, 0.65, 0.6, 0.35, 0.2]
    latents: dict[float, float] = {}

    def denoiser(x: Tensor, sigma: float, flow: bool) -> Tensor:
        latents[sigma] = float(x)
        return x - sigma * (4 * sigma**3 - 3 * sigma**2)

    start = Trajectory(torch.zeros(1, dtype=torch.float64), sigmas, lambda: torch.zeros(1), False)
    end, _ = run(SOLVERS[name].function(start), denoiser, False)
    latents[sigmas[-1]] = float(end)
    for before, after in pairwise(sigmas[3:]):
        expected = (after**4 - after**3) - (before**4 - before**3)
        assert latents[after] - latents[before] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("solver_type", ["er_sde", "reverse_sde", "ode"])
def test_er_sde_integrates_a_quadratic_estimate(solver_type: str) -> None:
    # Two tiny steps tell the solver the estimate's derivatives, then comes a large one.
    def scale(noise: float) -> float:
        if solver_type == "er_sde":
            return noise * (math.exp(noise**0.3) + 10)
        return noise**2 if solver_type == "reverse_sde" else noise

    tiny = 1e-4
    sigmas = (4 + 2 * tiny, 4 + tiny, 4.0, 1.5)
    seen: list[float] = []

    def denoiser(x: Tensor, sigma: float, flow: bool) -> Tensor:
        seen.append(float(x))
        return x * 0 + (sigma - 4) ** 2 + 0.3 * (sigma - 4) + 0.2

    x = torch.ones(1, dtype=torch.float64)
    start = Trajectory(x, sigmas, lambda: x * 0, flow=False)
    end, _ = run(SOLVERS["er_sde"].function(start, solver_type=solver_type), denoiser, False)
    # y / scale changes by the integral of the estimate over 1 / scale.
    total, count = 0.0, 20000
    for i in range(count):
        low, high = (4 + (1.5 - 4) * place / count for place in (i, i + 1))
        middle = (low + high) / 2 - 4
        total += (middle**2 + 0.3 * middle + 0.2) * (1 / scale(high) - 1 / scale(low))
    expected = scale(1.5) * (seen[-1] / scale(4.0) + total)
    assert float(end) == pytest.approx(expected, abs=1e-3)


@FLOWS
def test_a_sigma_between_two_is_halfway_in_lambda(flow: bool) -> None:
    for sigma, following in ((0.99, 0.9), (0.5, 0.003)):
        middle = sigma_between(sigma, following, 0.5, flow)
        width = log_snr(following, flow) - log_snr(sigma, flow)
        assert log_snr(middle, flow) - log_snr(sigma, flow) == pytest.approx(width / 2, rel=1e-9)
    assert 0.99999 <= sigma_between(1.0, 0.99999, 0.5, flow) <= 1
    assert sigma_between(0.5, 0.25, 1.0, flow) == pytest.approx(0.25)


def test_the_ratio_of_a_flow_rises_up_to_sigma_1() -> None:
    ratios = [ratio(sigma, True) for sigma in (0.5, 0.999, 0.9998, 0.99995, 0.99999, 1.0)]
    assert ratios == sorted(set(ratios))
    assert ratios[0] == pytest.approx(1, rel=1e-12)
    assert ratios[-1] == pytest.approx(1e4)


@FLOWS
@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0, 5.0])
def test_an_ancestral_step_keeps_signal_and_noise(eta: float, flow: bool) -> None:
    down, scale, spread = ancestral(0.8, 0.5, eta, flow)
    assert 0 <= down <= 0.5
    assert math.hypot(scale * down, spread) == pytest.approx(0.5)
    assert scale * (1 - down if flow else 1) == pytest.approx(0.5 if flow else 1)
    assert (spread > 0) is (eta > 0)


@FLOWS
@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
def test_a_reverse_leg_keeps_signal_and_noise(eta: float, flow: bool) -> None:
    keep, pull, spread = reverse_leg(0.8, 0.5, eta, flow)
    assert math.hypot(keep * 0.8, spread) == pytest.approx(0.5)
    assert keep * (0.2 if flow else 1) + pull == pytest.approx(0.5 if flow else 1)


def test_heunpp2_weighs_slopes_by_sigma() -> None:
    # Slopes 1, 2, 3 at sigmas 1, 0.75, 0.5: weights 1 - 1/4 - 1/6, 0.75 / 3, 0.5 / 3.
    def denoiser(x: Tensor, sigma: float, flow: bool) -> Tensor:
        return x - sigma * (5 - 4 * sigma)

    start = Trajectory(
        torch.zeros(1, dtype=torch.float64), (1.0, 0.75, 0.5, 0.25), torch.Tensor, False
    )
    seen = run(SOLVERS["heunpp2"].function(start), denoiser, False)[1]
    slope = 1 * (1 - 0.75 / 3 - 0.5 / 3) + 2 * 0.75 / 3 + 3 * 0.5 / 3
    assert float(seen[3].latents) == pytest.approx(-0.25 * slope)


@FLOWS
def test_ddpm_steps_by_the_posterior(flow: bool) -> None:
    sigma, following, target = 0.8, 0.5, 0.3

    def end(x: float, noise: float) -> float:
        unit = torch.full((1,), noise, dtype=torch.float64)
        latents = torch.full((1,), x, dtype=torch.float64)
        start = Trajectory(latents, (sigma, following), lambda: unit, flow)
        steps = SOLVERS["ddpm"].function(start)
        return float(run(steps, lambda x, sigma, flow: x * 0 + target, flow)[0])

    before, after = (1 - sigma, 1 - following) if flow else (1, 1)
    share = (following / after) ** 2 / (sigma / before) ** 2
    assert end(before * 2, 0) == pytest.approx(after * (target + share * (2 - target)))
    spread = following * math.sqrt(1 - share)
    assert end(0.1, 1) - end(0.1, 0) == pytest.approx(spread)
