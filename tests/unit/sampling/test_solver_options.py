from __future__ import annotations

import pytest

from inline_core.errors import InvalidParam
from inline_core.sampling.solver_options import options_from


def test_each_option_has_the_type_of_its_default() -> None:
    assert options_from("euler_a", "") == {}
    assert options_from("euler_a", " eta = 0.5 ,s_noise=1") == {"eta": 0.5, "s_noise": 1.0}
    found = options_from("lms", "order=2;")
    assert found == {"order": 2}
    assert isinstance(found["order"], int)
    assert options_from("dpmpp_2m_sde", "solver_type=heun") == {"solver_type": "heun"}


@pytest.mark.parametrize(
    ("sampler", "text", "message"),
    [
        ("euler", "eta=1", "'eta=1' is no option of euler: it has none"),
        ("euler_a", "etta=1", "it has eta=1.0"),
        ("euler_a", "eta", "'eta' is no option"),
        ("euler_a", "eta=much", "eta is 'much': it must be written like 1.0"),
        ("euler_a", "eta=nan", "eta is 'nan'"),
        ("euler_a", "eta=-1", "eta is -1.0: it has to be from"),
        ("lms", "order=1.5", "order is '1.5'"),
        ("lms", "order=99", "order is 99: it has to be from"),
    ],
)
def test_what_is_wrong_is_named(sampler: str, text: str, message: str) -> None:
    with pytest.raises(InvalidParam, match=message):
        options_from(sampler, text)
