from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from inline_core.errors import InvalidParam
from inline_core.sampling.schedules import SCHEDULES, sigmas_for

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "sigmas.json").read_text())


def close(got: tuple[float, ...], wanted: list[float]) -> bool:
    pairs = zip(got, wanted, strict=True)
    return all(abs(left - right) <= 2e-5 * abs(right) + 1e-6 for left, right in pairs)


@pytest.mark.parametrize("shift", VECTORS["schedules"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_values_are_those_of_comfyui(name: str, shift: str) -> None:
    for steps, wanted in VECTORS["schedules"][shift][name].items():
        got = sigmas_for(name, int(steps), float(shift))
        assert len(got) == len(wanted)
        assert close(got, wanted), (name, shift, steps)


@pytest.mark.parametrize("case", VECTORS["denoise"], ids=str)
def test_denoise_takes_the_last_part_of_a_longer_schedule(case: dict[str, Any]) -> None:
    got = sigmas_for(case["scheduler"], case["steps"], case["shift"], case["denoise"])
    assert close(got, case["sigmas"])


def test_edges() -> None:
    assert sigmas_for("simple", 8, 3.0, 0.0) == ()
    assert sigmas_for("simple", 1, 3.0) == (1.0, 0.0)
    assert sigmas_for("simple", 8, 3.0, 0.99995) == sigmas_for("simple", 8, 3.0)
    for name in SCHEDULES:
        for steps in (1, 2, 3, 200):
            sigmas = sigmas_for(name, steps, 3.0)
            assert sigmas[-1] == 0
            assert all(left > right for left, right in pairwise(sigmas))


def test_unknown_names_list_the_valid_ones() -> None:
    with pytest.raises(InvalidParam, match=r"simple, sgm_uniform, karras.*kl_optimal"):
        sigmas_for("nope", 8, 3.0)
    with pytest.raises(InvalidParam, match="at least 1"):
        sigmas_for("simple", 0, 3.0)
