"""Every solver converges with the order that its method promises.

Lower limits catch wrong coefficients; upper limits catch promises that are too modest.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from measure_solvers import (
    ENDS,
    MEAN,
    PROMISES,
    given_errors,
    law,
    marginal,
    marginal_errors,
    ode_errors,
    order,
    schedule,
)
from torch import Tensor

from inline_core.sampling.solvers import SOLVERS

FLOWS = pytest.mark.parametrize("flow", [True, False], ids=["flow", "eps"])
SLACK = 0.25
MORE = 0.75
MARGINAL = sorted(name for name, promise in PROMISES.items() if promise.marginal)


def test_every_solver_has_a_promise() -> None:
    plain = {name for name, solver in SOLVERS.items() if not solver.needs_unguided}
    assert set(PROMISES) == plain
    noisy = {name for name in plain if SOLVERS[name].noisy}
    assert {*MARGINAL, "lcm"} == noisy


@FLOWS
@pytest.mark.parametrize("name", sorted(name for name in PROMISES if PROMISES[name].order))
def test_order_for_the_ode(name: str, flow: bool, exact: dict[bool, Tensor]) -> None:
    promise = PROMISES[name]
    assert promise.order is not None
    function = SOLVERS[name].function
    errors = ode_errors(function, flow, exact[flow], **promise.noiseless)
    assert promise.order - SLACK < order(errors) < promise.order + MORE, errors


@FLOWS
@pytest.mark.parametrize(
    ("name", "options", "promised"),
    [
        ("lms", {"order": 1}, 1),
        ("lms", {"order": 2}, 2),
        ("lms", {"order": 3}, 3),
        ("ipndm_v", {"max_order": 3}, 3),
        ("deis", {"max_order": 2}, 2),
        ("uni_pc", {"order": 1}, 2),
        ("uni_pc", {"order": 2}, 3),
        ("uni_pc_bh2", {"order": 1}, 2),
        ("uni_pc_bh2", {"order": 2}, 3),
        ("er_sde", {"solver_type": "ode", "max_stage": 1}, 1),
        ("er_sde", {"solver_type": "ode", "max_stage": 2}, 2),
        ("dpmpp_sde", {"eta": 0.0, "r": 0.3}, 2),
        ("seeds_2", {"eta": 0.0, "r": 0.4}, 2),
        ("seeds_2", {"eta": 0.0, "r": 0.4, "solver_type": "phi_2"}, 2),
        ("exp_heun_2_x0", {"solver_type": "phi_1"}, 2),
        ("seeds_3", {"eta": 0.0, "r_1": 0.25}, 3),
        ("sa_solver", {"eta": 0.0, "predictor_order": 3, "corrector_order": 0}, 3),
        ("sa_solver", {"eta": 0.0, "predictor_order": 2, "corrector_order": 0}, 2),
        ("sa_solver", {"eta": 0.0, "predictor_order": 1, "corrector_order": 2}, 2),
        ("sa_solver", {"eta": 0.0, "predictor_order": 2, "corrector_order": 3}, 3),
        ("sa_solver_pece", {"eta": 0.0, "predictor_order": 1, "corrector_order": 2}, 2),
        ("gradient_estimation", {"ge_gamma": 1.5}, 2),
    ],
)
def test_order_with_options(
    name: str, options: dict[str, Any], promised: int, flow: bool, exact: dict[bool, Tensor]
) -> None:
    errors = ode_errors(SOLVERS[name].function, flow, exact[flow], **options)
    assert promised - SLACK < order(errors) < promised + MORE, errors


@FLOWS
@pytest.mark.parametrize("name", ["lms", "ipndm", "deis", "dpmpp_3m_sde"])
def test_an_euler_start_leaves_second_order(
    name: str, flow: bool, exact: dict[bool, Tensor]
) -> None:
    # The schedule starts with whole steps: the error of the first one is of second order.
    options = PROMISES[name].noiseless
    errors = ode_errors(SOLVERS[name].function, flow, exact[flow], slow_start=1.0, **options)
    assert 2 - SLACK < order(errors) < 3 - SLACK, errors


@FLOWS
@pytest.mark.parametrize("name", MARGINAL)
def test_noise_keeps_the_marginal(name: str, flow: bool) -> None:
    promised = PROMISES[name].marginal
    assert promised is not None
    errors = marginal_errors(SOLVERS[name].function, flow)
    assert errors[0] < 0.05
    assert promised - SLACK < order(errors) < promised + MORE, errors


@FLOWS
@pytest.mark.parametrize("name", MARGINAL)
def test_the_mean_of_a_gaussian_is_exact(name: str, flow: bool) -> None:
    first, last = ENDS[flow]
    found = law(SOLVERS[name].function, schedule(7, flow, 1.0), flow)
    (start, _), (end, _) = marginal(first, flow), marginal(last, flow)
    assert found.mean(start) == pytest.approx(end, abs=1e-12)
    assert MEAN > 0
    assert found.spread > 0


@FLOWS
@pytest.mark.parametrize("name", MARGINAL)
def test_full_noise_gives_the_law_of_the_reversed_process(name: str, flow: bool) -> None:
    promise = PROMISES[name]
    assert promise.given is not None
    errors = given_errors(SOLVERS[name].function, flow, **promise.full_noise)
    assert promise.given - SLACK < order(errors) < promise.given + MORE, errors


@FLOWS
@pytest.mark.parametrize("name", sorted(set(MARGINAL) - {"ddpm", "er_sde"}))
@pytest.mark.parametrize("eta", [0.0, 0.4])
def test_less_noise_keeps_the_marginal_too(name: str, eta: float, flow: bool) -> None:
    promised = PROMISES[name].marginal
    assert promised is not None
    errors = marginal_errors(SOLVERS[name].function, flow, counts=(20, 40), eta=eta)
    assert promised - 2 * SLACK < order(errors) or max(errors) < 1e-4, errors


def test_a_noise_that_is_not_drawn_has_no_effect() -> None:
    found = law(SOLVERS["dpmpp_2m_sde"].function, schedule(5, False, 1.0), False, s_noise=0.0)
    assert math.isclose(found.spread, 0.0)
