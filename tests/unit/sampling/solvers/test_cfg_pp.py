"""CFG++ without guidance is the plain solver; with it the unguided noise is put back."""

from __future__ import annotations

import math

import pytest
import torch
from measure_solvers import MIXTURE, run, schedule
from torch import Tensor

from inline_core.sampling.solvers import SOLVERS, Estimate, Steps, Trajectory, solver_named

FLOWS = pytest.mark.parametrize("flow", [True, False], ids=["flow", "eps"])
FORMS = sorted(name for name, solver in SOLVERS.items() if solver.needs_unguided)


def test_the_forms() -> None:
    assert sorted(name for name in SOLVERS if name.endswith("_cfg_pp")) == FORMS
    assert len(FORMS) == 7


@FLOWS
@pytest.mark.parametrize("name", FORMS)
def test_without_guidance_it_is_the_plain_form(name: str, flow: bool) -> None:
    x = torch.linspace(-3, 3, 9, dtype=torch.float64)

    def result(solver: str) -> Tensor:
        generator = torch.Generator().manual_seed(5)
        start = Trajectory(
            x,
            schedule(6, flow, 1.0),
            lambda: torch.randn(9, generator=generator, dtype=torch.float64),
            flow,
        )
        return run(solver_named(solver).function(start), MIXTURE.estimate, flow)[0]

    plain = solver_named(name.removesuffix("_cfg_pp"))
    assert torch.allclose(result(name), result(plain.name), atol=1e-13)
    assert plain.options == SOLVERS[name].options


def guided(steps: Steps, denoised: float, unguided: float) -> Tensor:
    """The result where every query gets the same two estimates."""
    try:
        next(steps)
        while True:
            steps.send(Estimate(torch.full((1,), denoised), torch.full((1,), unguided)))
    except StopIteration as end:
        result: Tensor = end.value
        return result


@FLOWS
@pytest.mark.parametrize("name", FORMS)
def test_one_step_puts_the_unguided_noise_on_the_guided_estimate(name: str, flow: bool) -> None:
    sigma, following, x, denoised, unguided = 0.8, 0.4, 1.3, 0.5, -0.2
    options = {"s_noise": 0.0, "eta": 0.0} if SOLVERS[name].noisy else {}
    start = Trajectory(torch.full((1,), x), (sigma, following), lambda: torch.zeros(1), flow)
    result = guided(SOLVERS[name].function(start, **options), denoised, unguided)
    noise = (x - (1 - sigma if flow else 1) * unguided) / sigma
    expected = (1 - following if flow else 1) * denoised + following * noise
    assert float(result) == pytest.approx(expected, rel=1e-5)


@FLOWS
def test_the_ancestral_form_adds_noise_up_to_the_next_sigma(flow: bool) -> None:
    def solved(noise: float) -> float:
        start = Trajectory(torch.full((1,), 1.3), (0.8, 0.4), lambda: torch.full((1,), noise), flow)
        return float(guided(SOLVERS["euler_ancestral_cfg_pp"].function(start), 0.5, -0.2))

    spread = solved(1.0) - solved(0.0)
    noise = (1.3 - (0.2 if flow else 1) * -0.2) / 0.8
    kept = (solved(0.0) - (0.6 if flow else 1) * 0.5) / noise
    assert math.hypot(spread, kept) == pytest.approx(0.4, rel=1e-5)
    assert 0 < kept < 0.4


def test_the_last_step_ends_in_the_guided_estimate() -> None:
    for name in FORMS:
        start = Trajectory(torch.ones(1), (1.0, 0.5, 0.0), lambda: torch.ones(1), flow=True)
        assert float(guided(SOLVERS[name].function(start), 0.5, -0.2)) == 0.5, name
