from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inline_core.errors import InvalidParam
from inline_core.sampling.sigmas import curves
from inline_core.sampling.sigmas.schedules import SCHEDULE_LABELS, SCHEDULES, beta, sigmas_for
from tests.unit.sampling.sigmas.vectors import EXTRA, TABLES, VECTORS, close

DROPPING = ("dpm_2", "dpm_2_ancestral", "uni_pc", "uni_pc_bh2")
ORDER = [
    "simple",
    "sgm_uniform",
    "karras",
    "exponential",
    "ddim_uniform",
    "beta",
    "normal",
    "linear_quadratic",
    "kl_optimal",
]


def test_names_and_order_are_those_of_comfyui() -> None:
    assert list(SCHEDULES) == list(SCHEDULE_LABELS) == ORDER
    assert all(set(by_name) == set(ORDER) for by_name in VECTORS["schedules"].values())


@pytest.mark.parametrize("model", TABLES)
@pytest.mark.parametrize("name", ORDER)
def test_values_are_those_of_comfyui(name: str, model: str) -> None:
    for steps, wanted in VECTORS["schedules"][model][name].items():
        got = sigmas_for(name, int(steps), TABLES[model])
        assert close(got, wanted), (name, model, steps, got, wanted)


@pytest.mark.parametrize("case", VECTORS["ksampler"], ids=str)
def test_ksampler_rules(case: dict[str, Any]) -> None:
    got = sigmas_for(
        case["scheduler"],
        case["steps"],
        TABLES[case["model"]],
        case["denoise"],
        drops_penultimate=case["sampler"] in DROPPING,
    )
    assert close(got, case["sigmas"])


def test_basic_scheduler_has_the_same_denoise_rule() -> None:
    wanted = EXTRA["BasicScheduler_flow3_simple_20_denoise0.4"]
    assert close(sigmas_for("simple", 20, TABLES["flow_shift_3.0"], 0.4), wanted)


@given(
    st.sampled_from(ORDER),
    st.integers(1, 400),
    st.sampled_from(sorted(TABLES)),
    st.floats(0.02, 1.0),
    st.booleans(),
)
def test_sigmas_fall_and_are_as_many_as_asked(
    name: str, steps: int, model: str, denoise: float, drops: bool
) -> None:
    table = TABLES[model]
    sigmas = sigmas_for(name, steps, table, denoise, drops_penultimate=drops)
    assert all(left > right for left, right in pairwise(sigmas))
    assert sigmas[-1] == 0
    assert sigmas[0] <= table.largest * (1 + 1e-12)
    full = denoise > 0.9999
    if full and name != "ddim_uniform":
        assert sigmas[0] == pytest.approx(table.largest, rel=1e-9)
    laid_out = steps if full else int(steps / denoise)
    if name == "ddim_uniform" and full:
        assert len(sigmas) >= steps
    elif name != "beta" and laid_out < len(table):
        assert len(sigmas) == steps + 1
    else:
        assert len(sigmas) <= steps + 1


def test_one_step_has_a_value_in_every_schedule() -> None:
    for name in ORDER:
        for table in TABLES.values():
            if name == "ddim_uniform":
                assert len(sigmas_for(name, 1, table)) == 2
            else:
                assert sigmas_for(name, 1, table) == pytest.approx((table.largest, 0.0))


def test_edges_of_denoise() -> None:
    table = TABLES["flow_shift_3.0"]
    assert sigmas_for("simple", 8, table, 0.0) == sigmas_for("simple", 8, table, -1) == ()
    assert sigmas_for("simple", 8, table, float("nan")) == ()
    assert sigmas_for("simple", 8, table, 0.99995) == sigmas_for("simple", 8, table)
    assert sigmas_for("simple", 8, table, 7) == sigmas_for("simple", 8, table)
    with pytest.raises(InvalidParam, match="too small") as caught:
        sigmas_for("beta", 20, table, 1e-9)
    assert caught.value.param == "denoise"


@pytest.mark.parametrize("name", ORDER)
def test_a_repeated_sigma_is_left_out(name: str) -> None:
    started = time.perf_counter()
    sigmas = sigmas_for(name, 100, TABLES["flow_shift_3.0"], 0.001)
    assert time.perf_counter() - started < 10
    assert 2 <= len(sigmas) <= 101
    assert all(left > right for left, right in pairwise(sigmas))


def test_unknown_names_list_the_valid_ones() -> None:
    table = TABLES["flow_shift_1.0"]
    with pytest.raises(InvalidParam, match=r"simple, sgm_uniform, karras.*kl_optimal") as caught:
        sigmas_for("nope", 8, table)
    assert caught.value.param == "scheduler"
    with pytest.raises(InvalidParam, match="at least 1"):
        sigmas_for("simple", 0, table)


def test_beta_in_general() -> None:
    table = TABLES["sd15_eps"]
    # Beta(1, 1) is uniform: evenly spaced places.
    assert beta(4, table, 1.0, 1.0) == [table[i] for i in (999, 749, 500, 250)]
    # More weight on high places, or on low ones.
    assert beta(4, table, 3.0, 1.0)[2] > beta(4, table)[2] > beta(4, table, 1.0, 3.0)[2]
    for wrong in ((0, 1), (1, 0), (-1, 1), (float("nan"), 1)):
        with pytest.raises(InvalidParam, match="above 0"):
            beta(4, table, *wrong)


def test_the_beta_distribution_is_the_known_one() -> None:
    # Beta(2, 3): 1 - (1 - x)^3 (1 + 3 x).
    for x in (0.0, 0.1, 0.5, 0.7, 1.0):
        wanted = 1 - (1 - x) ** 3 * (1 + 3 * x)
        assert curves.beta_cdf(x, 2, 3) == pytest.approx(wanted, abs=1e-13)
    assert curves.beta_cdf(0.5, 0.6, 0.6) == pytest.approx(0.5)
