from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from inline_core.errors import InvalidParam
from inline_core.sampling.schedules import sigmas_for
from inline_core.sampling.solvers import SOLVERS, euler_a, solver_named

SPREAD = 0.5


def best_estimate(x: Tensor, sigma: float) -> Tensor:
    """E[x0 | x] for x0 ~ N(0, 0.25) and x = (1 - sigma) x0 + sigma n."""
    variance = (1 - sigma) ** 2 * SPREAD**2 + sigma**2
    return (1 - sigma) * SPREAD**2 / variance * x


def run(name: str, x: Tensor, steps: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    sigmas = sigmas_for("simple", steps, 1.0)
    solver = solver_named(name)(x, sigmas, lambda: torch.randn(x.shape, generator=generator))
    query = next(solver)
    try:
        while True:
            query = solver.send(best_estimate(query.latents, query.sigma))
    except StopIteration as end:
        result: Tensor = end.value
        return result


@pytest.mark.parametrize(("name", "order"), [("euler", 1), ("heun", 2), ("dpmpp_2m", 1.5)])
def test_solvers_converge_to_the_exact_flow(name: str, order: float) -> None:
    # The exact flow of a Gaussian scales the noise by its spread.
    x = torch.linspace(-2, 2, 9, dtype=torch.float64).view(1, 1, 3, 3)
    errors = [float((run(name, x, steps) - SPREAD * x).abs().max()) for steps in (20, 40, 80)]
    assert errors[0] < 0.08
    assert errors[2] < errors[0] / 2 ** (2 * order) * 1.6


def test_euler_a_keeps_the_distribution() -> None:
    x = torch.randn((1, 1, 90, 90), generator=torch.Generator().manual_seed(1))
    result = run("euler_a", x, 300)
    assert float(result.std()) == pytest.approx(SPREAD, rel=0.03)
    assert not torch.allclose(result, SPREAD * x, atol=0.1)


def test_euler_a_adds_up_to_the_next_noise_level() -> None:
    zero = torch.zeros(1, 1, 1, 1)
    solver = euler_a(torch.ones(1, 1, 1, 1), (1.0, 0.5, 0.0), lambda: torch.ones(1, 1, 1, 1))
    next(solver)
    after = solver.send(zero)
    below = 0.25
    scale = 0.5 / 0.75
    spread = math.sqrt(0.25 - (scale * below) ** 2)
    assert float(after.latents) == pytest.approx(scale * below + spread)


def test_steps_are_counted_from_zero() -> None:
    for name, solver in SOLVERS.items():
        x = torch.zeros(1, 1, 1, 1)
        steps = solver(x, (1.0, 0.5, 0.0), lambda: torch.zeros(1, 1, 1, 1))
        seen = [next(steps).step]
        try:
            while True:
                seen.append(steps.send(torch.zeros(1, 1, 1, 1)).step)
        except StopIteration:
            pass
        assert sorted(set(seen)) == [0, 1], name


def test_names() -> None:
    assert solver_named("euler_ancestral") is euler_a
    with pytest.raises(InvalidParam, match="euler, euler_a, heun, dpmpp_2m"):
        solver_named("nope")
