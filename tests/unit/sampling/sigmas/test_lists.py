from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inline_core.errors import InvalidParam
from inline_core.sampling.sigmas import lists
from inline_core.sampling.sigmas.schedules import sigmas_for
from inline_core.sampling.sigmas.values import Sigmas
from tests.unit.sampling.sigmas.vectors import EXTRA, TABLES, close

SIMPLE = sigmas_for("simple", 20, TABLES["flow_shift_3.0"])
FALLING = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40, unique=True).map(
    lambda values: (*sorted(values, reverse=True), 0.0)
)


def test_parts_of_the_advanced_sampler() -> None:
    sigmas = sigmas_for("simple", 20, TABLES["flow_shift_8.0"])
    wanted = EXTRA["ksampler_advanced_shift8_simple_20"]
    assert len(wanted) == 3
    assert close(lists.between(sigmas, 0, 10, True), wanted["high_noise_start0_end10_leftover"])
    for leftover in (True, False):
        got = lists.between(sigmas, 10, 10000, leftover)
        assert close(got, wanted["low_noise_start10_end10000"])
    assert close(lists.between(sigmas, 0, 10, False), wanted["start0_end10_no_leftover"])


def test_parts_that_are_empty_or_whole() -> None:
    assert lists.between(SIMPLE, 0, 10000, False) == SIMPLE
    assert lists.between(SIMPLE, -3, 10000, True) == SIMPLE
    for start, end in ((20, 10000), (500, 10000), (5, 5), (5, 3), (0, 0), (0, -1)):
        assert lists.between(SIMPLE, start, end, False) == ()
    assert lists.between((), 0, 5, True) == ()


def test_splits() -> None:
    wanted = EXTRA["SplitSigmas_flow3_simple_20_at_8"]
    high, low = lists.split(SIMPLE, 8)
    assert close(high, wanted["high"])
    assert close(low, wanted["low"])
    wanted = EXTRA["SplitSigmasDenoise_flow3_simple_20_0.3"]
    high, low = lists.split_denoise(SIMPLE, 0.3)
    assert close(high, wanted["high"])
    assert close(low, wanted["low"])


def test_edges_of_splits() -> None:
    assert lists.split(SIMPLE, 0) == lists.split(SIMPLE, -1) == (SIMPLE[:1], SIMPLE)
    assert lists.split(SIMPLE, 20) == (SIMPLE, (0.0,))
    assert lists.split(SIMPLE, 21) == (SIMPLE, ())
    assert lists.split_denoise(SIMPLE, 0) == (SIMPLE, (0.0,))
    assert lists.split_denoise(SIMPLE, 1) == lists.split_denoise(SIMPLE, 3) == (SIMPLE[:1], SIMPLE)
    assert lists.split_denoise((), 0.5) == lists.split((), 3) == ((), ())


@given(FALLING, st.integers(0, 50), st.floats(0, 1))
def test_splits_share_one_sigma_and_lose_none(
    sigmas: tuple[float, ...], step: int, denoise: float
) -> None:
    for high, low in (lists.split(sigmas, step), lists.split_denoise(sigmas, denoise)):
        if low:
            assert high[:-1] + low == sigmas
            assert high[-1] == low[0]
        else:
            assert high == sigmas
    low = lists.split_denoise(sigmas, denoise)[1]
    assert len(low) - 1 == round((len(sigmas) - 1) * denoise)


def test_flip() -> None:
    assert close(lists.flip(SIMPLE), EXTRA["FlipSigmas_flow3_simple_20"])
    assert lists.flip((0.5, 0.25)) == (0.25, 0.5)
    assert lists.flip(()) == ()


def test_set_first() -> None:
    assert lists.set_first((14.6, 1.0, 0.0), 136.0) == (136.0, 1.0, 0.0)
    assert lists.set_first((), 136.0) == ()


def test_manual_reads_what_comfyui_reads() -> None:
    case = EXTRA["ManualSigmas_parse"]
    assert lists.manual(case["text"]) == tuple(case["sigmas"])
    assert lists.manual("1, 0.5") == (1.0, 0.5)
    assert lists.manual("  1\n0.5\t.25,, 1e-2\n") == (1.0, 0.5, 0.25, 0.01)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has 0 numbers"),
        (" , ", "has 0 numbers"),
        ("1", "has 1 numbers"),
        ("1, half, 0", r"number 2: 'half'"),
        ("1; 0.5", r"number 1: '1;'"),
        ("1, -0.5", r"number 2: '-0.5'"),
        ("inf, 0", r"number 1: 'inf'"),
        ("1, nan", r"number 2: 'nan'"),
        ("1, 0.5, 0.5, 0", r"number 3 \(0.5\) is not below number 2 \(0.5\)"),
        ("0, 1", r"number 2 \(1\) is not below number 1 \(0\)"),
        ("1 " * 10_002, "has 10002 numbers"),
        ("1, " + "x" * 5000, r"'x{40}' is"),
    ],
)
def test_manual_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(InvalidParam, match=words) as caught:
        lists.manual(text)
    assert caught.value.param == "sigmas"


@given(FALLING)
def test_manual_reads_back_what_was_written(sigmas: tuple[float, ...]) -> None:
    assert lists.manual(", ".join(map(repr, sigmas))) == sigmas


@given(st.text(max_size=60))
def test_manual_never_fails_otherwise(text: str) -> None:
    try:
        values: Any = lists.manual(text)
    except InvalidParam:
        return
    assert Sigmas(values).steps == len(values) - 1


def test_sigmas_are_finite_and_not_negative() -> None:
    assert Sigmas(()).steps == 0
    assert Sigmas((1.0, 0.5, 0.0)).steps == 2
    assert Sigmas((1.0, 0.0)).size_bytes > 0
    for wrong in (-0.1, float("nan"), float("inf")):
        with pytest.raises(InvalidParam, match="number 2"):
            Sigmas((1.0, wrong))
