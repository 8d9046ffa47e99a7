from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inline_core.sampling.sigmas.tables import (
    EpsTable,
    FlowTable,
    SigmaTable,
    flux_mu,
    flux_sigma,
    flux_table,
)
from tests.unit.sampling.sigmas.vectors import EXTRA, TABLES, VECTORS, close


def test_there_is_a_table_for_each_vector() -> None:
    assert set(TABLES) == set(VECTORS["tables"]) == set(VECTORS["schedules"])


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_comfyui(name: str) -> None:
    table, wanted = TABLES[name], VECTORS["tables"][name]
    size = wanted["len"]
    assert len(table) == size
    assert table.flow == (name != "sd15_eps")
    assert close(
        (table.smallest, table.largest, table[size // 2 - 1]),
        (wanted["sigma_min"], wanted["sigma_max"], wanted["mid"]),
    )
    assert close([table[i] for i in range(3)], wanted["first3"])
    assert close([table[i] for i in range(-3, 0)], wanted["last3"])
    assert table[-size] == table[0]
    for outside in (size, -size - 1):
        with pytest.raises(IndexError):
            table[outside]


@pytest.mark.parametrize("name", EXTRA["percent_to_sigma"])
def test_percents(name: str) -> None:
    for percent, sigma in EXTRA["percent_to_sigma"][name].items():
        assert close([TABLES[name].sigma_at(float(percent))], [sigma])
    assert TABLES[name].sigma_at(-1) == TABLES[name].sigma_at(0)
    assert TABLES[name].sigma_at(2) == 0


@pytest.mark.parametrize("size", EXTRA["ModelSamplingFlux_mu"])
def test_mu_of_flux(size: str) -> None:
    width, height = map(int, size.split("x"))
    assert flux_mu(width, height) == pytest.approx(EXTRA["ModelSamplingFlux_mu"][size], rel=1e-12)


@given(st.sampled_from(sorted(TABLES)), st.floats(0, 1))
def test_sigma_and_timestep_are_inverse_up_to_the_shift(name: str, part: float) -> None:
    table = TABLES[name]
    if isinstance(table, EpsTable):
        place = int(part * (len(table) - 1))
        assert table.timestep(table[place]) == place
        assert table.sigma(place) == pytest.approx(table[place], rel=1e-12)
    elif isinstance(table, FlowTable):
        # The model is fed with sigma itself; sigma() is the shift of an unshifted time.
        assert table.timestep(part) == pytest.approx(part * table.multiplier)
        assert table.sigma(part * table.multiplier) == pytest.approx(
            FlowTable(table.shift).sigma(part)
        )
    else:
        assert table.timestep(part) == part


@given(st.sampled_from(sorted(TABLES)), st.floats(0, 1), st.floats(0, 1))
def test_percents_fall(name: str, left: float, right: float) -> None:
    table: SigmaTable = TABLES[name]
    low, high = sorted((left, right))
    assert table.sigma_at(low) >= table.sigma_at(high)


def test_timesteps_beyond_the_ends_of_an_eps_table() -> None:
    table = EpsTable()
    assert table.timestep(0) == table.timestep(1e-9) == 0
    assert table.timestep(1e9) == 999
    assert table.sigma(-5) == table.smallest
    assert table.sigma(5000) == table.largest
    assert table.timestep(table[10] * 1.0001) == 10
    assert len(EpsTable(size=50)) == 50


def test_flux_is_flow_with_another_name_for_the_shift() -> None:
    table = flux_table(0.0)
    assert table.sigma(0.25) == flux_sigma(0.0, 0.25) == 0.25
    assert flux_sigma(1.15, 0.0) == 0
    assert flux_sigma(1.15, 1.0) == pytest.approx(1, rel=1e-12)
