"""Every solver takes any schedule: short ones, from sigma 1, to 0 and to a sigma above 0."""

from __future__ import annotations

import math

import pytest
import torch
from measure_solvers import run
from torch import Tensor

from inline_core.sampling.solvers import SOLVERS, Estimate, Solver, Trajectory

FLOWS = pytest.mark.parametrize("flow", [True, False], ids=["flow", "eps"])
EVERY = pytest.mark.parametrize("solver", list(SOLVERS.values()), ids=list(SOLVERS))
SIGMAS = {
    True: [
        (1.0, 0.0),
        (1.0, 0.4),
        (0.7, 0.0),
        (1.0, 0.6, 0.0),
        (1.0, 0.6, 0.2),
        (1.0, 0.99999, 0.999, 0.9, 0.5, 0.003, 0.0),
    ],
    False: [
        (14.6, 0.0),
        (14.6, 2.0),
        (0.7, 0.0),
        (14.6, 1.5, 0.0),
        (14.6, 1.5, 0.03),
        (14.6, 9.0, 4.0, 1.0, 0.3, 0.03, 0.0),
    ],
}
SHAPE = (2, 3, 2, 2)
TARGET = torch.linspace(-1, 1, 24).view(SHAPE)


def solve(solver: Solver, sigmas: tuple[float, ...], flow: bool) -> tuple[Tensor, list[int]]:
    generator = torch.Generator().manual_seed(3)

    def noise() -> Tensor:
        return torch.randn(SHAPE, generator=generator)

    x = noise()  # (2, 3, 2, 2)
    start = (1 - sigmas[0] if flow else 1) * TARGET + sigmas[0] * x
    steps = solver.function(Trajectory(start, sigmas, noise, flow))
    result, queries = run(steps, lambda x, sigma, flow: TARGET, flow)
    assert all(query.latents.isfinite().all() for query in queries)
    assert all(0 < query.sigma <= sigmas[0] for query in queries)
    assert all(query.latents.shape == SHAPE for query in queries)
    return result, [query.step for query in queries]


@FLOWS
@EVERY
def test_every_schedule_is_finished(solver: Solver, flow: bool) -> None:
    for sigmas in SIGMAS[flow]:
        result, steps = solve(solver, sigmas, flow)
        assert result.isfinite().all()
        assert result.dtype == torch.float32
        assert sorted(set(steps)) == list(range(len(sigmas) - 1))
        assert steps == sorted(steps)
        if sigmas[-1] == 0:
            assert torch.equal(result, TARGET), sigmas


@FLOWS
@EVERY
def test_the_noise_left_over_has_the_last_sigma(solver: Solver, flow: bool) -> None:
    """With the true estimate known, all solvers keep x = alpha x0 + sigma n: here for many n."""
    count = 20000
    generator = torch.Generator().manual_seed(4)

    def noise() -> Tensor:
        return torch.randn(count, generator=generator, dtype=torch.float64)

    sigmas = (1.0, 0.6, 0.2) if flow else (14.6, 1.5, 0.3)
    signal = 1 - sigmas[0] if flow else 1.0
    start = Trajectory(signal * 0.5 + sigmas[0] * noise(), sigmas, noise, flow)
    target = torch.full((count,), 0.5, dtype=torch.float64)
    result, _ = run(solver.function(start), lambda x, sigma, flow: target, flow)
    left = result - (1 - sigmas[-1] if flow else 1.0) * 0.5
    assert float(left.mean()) == pytest.approx(0, abs=0.03 * sigmas[-1])
    assert float(left.std()) == pytest.approx(sigmas[-1], rel=0.03)


@EVERY
def test_only_noisy_solvers_draw_noise(solver: Solver) -> None:
    draws = 0

    def noise() -> Tensor:
        nonlocal draws
        draws += 1
        return torch.zeros(1)

    start = Trajectory(torch.zeros(1), (1.0, 0.8, 0.6, 0.4, 0.2), noise, flow=True)
    run(solver.function(start), lambda x, sigma, flow: x * 0, flow=True)
    assert (draws > 0) is solver.noisy


@EVERY
def test_only_cfg_pp_uses_the_unguided_estimate(solver: Solver) -> None:
    def result(unguided: float) -> float:
        start = Trajectory(torch.ones(1), (1.0, 0.6, 0.2), lambda: torch.zeros(1), flow=True)
        steps = solver.function(start)
        try:
            query = next(steps)
            while True:
                other = query.latents * unguided
                query = steps.send(Estimate(query.latents * 0.5, other))
        except StopIteration as end:
            return float(end.value)

    assert math.isclose(result(0.1), result(0.5)) is not solver.needs_unguided
