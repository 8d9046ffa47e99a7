from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inline_core.errors import InvalidParam
from inline_core.sampling.sigmas import published
from inline_core.sampling.sigmas.schedules import sigmas_for
from tests.unit.sampling.sigmas.vectors import EXTRA, TABLES, close

CHECKED_ELSEWHERE = {
    "ksampler_advanced_shift8_simple_20",
    "ModelSamplingFlux_mu",
    "BasicScheduler_flow3_simple_20_denoise0.4",
    "SplitSigmas_flow3_simple_20_at_8",
    "SplitSigmasDenoise_flow3_simple_20_0.3",
    "FlipSigmas_flow3_simple_20",
    "ManualSigmas_parse",
    "percent_to_sigma",
    "AlignYourSteps_note",
}
FLUX2 = {
    "Flux2Scheduler_20_1024x1024": (20, 1024, 1024),
    "Flux2Scheduler_4_1024x1024": (4, 1024, 1024),
    "Flux2Scheduler_20_1920x1080": (20, 1920, 1080),
}
LTXV = {
    "LTXVScheduler_20_default_no_latent": published.ltxv(20),
    "LTXVScheduler_20_tokens_13x16x24": published.ltxv(20, 13 * 16 * 24),
    "LTXVScheduler_8_nostretch": published.ltxv(8, stretch=False),
}
TURBO = {
    "SDTurboScheduler_1": published.sd_turbo(TABLES["sd15_eps"]),
    "SDTurboScheduler_4_denoise0.5": published.sd_turbo(TABLES["sd15_eps"], 4, 0.5),
}


def test_every_vector_is_checked_somewhere() -> None:
    assert set(EXTRA) == CHECKED_ELSEWHERE | set(FLUX2) | set(LTXV) | set(TURBO)


@pytest.mark.parametrize("name", FLUX2)
def test_flux2(name: str) -> None:
    assert published.flux2_mu(*FLUX2[name]) == pytest.approx(EXTRA[name]["mu"], rel=1e-9)
    assert close(published.flux2(*FLUX2[name]), EXTRA[name]["sigmas"])


@pytest.mark.parametrize("name", LTXV)
def test_ltxv(name: str) -> None:
    assert close(LTXV[name], EXTRA[name]["sigmas"])


@pytest.mark.parametrize("name", TURBO)
def test_sd_turbo(name: str) -> None:
    assert close(TURBO[name], EXTRA[name])


def test_edges_of_sd_turbo() -> None:
    table = TABLES["sd15_eps"]
    assert len(published.sd_turbo(table, 10)) == len(published.sd_turbo(table, 50)) == 11
    assert len(published.sd_turbo(table, 10, 0.35)) == 4
    assert published.sd_turbo(table, 4, 0.0) == published.sd_turbo(table, 4, 0.05) == ()


def test_edges_of_ltxv() -> None:
    assert published.ltxv(1) == (1.0, 0.0)
    assert published.ltxv(2, terminal=0.0) == (1.0, 0.0)
    for terminal in (1.0, -0.1, float("nan")):
        with pytest.raises(InvalidParam, match="terminal"):
            published.ltxv(20, terminal=terminal)


@pytest.mark.parametrize("model_type", published.ALIGN_YOUR_STEPS)
def test_align_your_steps(model_type: str) -> None:
    table = published.ALIGN_YOUR_STEPS[model_type]
    assert published.align_your_steps(model_type, 10) == (*table[:-1], 0.0)
    assert published.align_your_steps(model_type, 10, 0.4) == (*table[6:-1], 0.0)
    assert published.align_your_steps(model_type, 10, 0.0) == ()
    # Twice the steps go through the given ones and half way between, in the logarithm.
    twice = published.align_your_steps(model_type, 20)
    assert twice[:-1:2] == pytest.approx(table[:-1])
    assert twice[1] == pytest.approx((table[0] * table[1]) ** 0.5)
    assert published.align_your_steps(model_type, 1) == pytest.approx((table[0], 0.0))


def test_karras_and_exponential_are_the_schedules_with_other_ends() -> None:
    table = TABLES["sd15_eps"]
    ends = table.largest, table.smallest
    assert published.karras(20, *ends) == sigmas_for("karras", 20, table)
    assert published.exponential(20, *ends) == sigmas_for("exponential", 20, table)
    assert published.karras(20, *ends, rho=1.0)[10] > published.karras(20, *ends)[10]


@given(
    st.integers(1, 300),
    st.integers(16, 4096),
    st.integers(16, 4096),
    st.sampled_from(sorted(published.ALIGN_YOUR_STEPS)),
)
def test_all_of_them_fall_to_zero(steps: int, width: int, height: int, model_type: str) -> None:
    for sigmas in (
        published.flux2(steps, width, height),
        published.ltxv(steps, width),
        published.ltxv(steps, height, stretch=False),
        published.align_your_steps(model_type, steps),
        published.karras(steps),
        published.exponential(steps),
    ):
        assert len(sigmas) == steps + 1
        assert all(left > right for left, right in pairwise(sigmas))
        assert sigmas[-1] == 0


def test_wrong_arguments() -> None:
    with pytest.raises(InvalidParam, match="SD1, SDXL, SVD") as caught:
        published.align_your_steps("SD3", 10)
    assert caught.value.param == "model_type"
    calls: list[Callable[[], object]] = [
        lambda: published.align_your_steps("SD1", 0),
        lambda: published.flux2(0, 64, 64),
        lambda: published.ltxv(0),
        lambda: published.sd_turbo(TABLES["sd15_eps"], 0),
        lambda: published.karras(0),
        lambda: published.exponential(0),
    ]
    for call in calls:
        with pytest.raises(InvalidParam, match="at least 1"):
            call()
    for ends in ((1.0, 1.0), (1.0, 0.0), (1.0, 2.0), (float("nan"), 1.0)):
        with pytest.raises(InvalidParam, match="sigma_max"):
            published.karras(5, *ends)
        with pytest.raises(InvalidParam, match="sigma_max"):
            published.exponential(5, *ends)
    with pytest.raises(InvalidParam, match="rho"):
        published.karras(5, rho=0.0)
