"""The reference page has the row of every solver, with the promises that the tests check."""

from __future__ import annotations

from pathlib import Path

import pytest
from measure_solvers import PROMISES, evaluations

from inline_core.sampling.solvers import SOLVERS

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "solvers.md"


def rows() -> dict[str, list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "| `" in line]
    return {row[0].strip("`"): row for row in cells}


def test_the_page_has_every_solver_and_its_promises() -> None:
    written = rows()
    assert list(written) == list(SOLVERS)
    for name, row in written.items():
        _, label, source, calls, noise, *orders = row
        assert label == SOLVERS[name].label
        assert int(calls) == round(evaluations(SOLVERS[name]))
        assert (noise == "yes") is SOLVERS[name].noisy
        promise = PROMISES.get(name)
        if promise is None:
            assert orders[0].startswith("as `")
            continue
        assert source == promise.source
        promised = (promise.order, promise.marginal, promise.given)
        assert orders[::3] == ["" if order is None else str(order) for order in promised]
        for place, order in enumerate(promised):
            for measured in orders[3 * place + 1 : 3 * place + 3]:
                assert order is None or float(measured) == pytest.approx(order, abs=0.75)


def test_estimates_a_step() -> None:
    assert evaluations(SOLVERS["euler"]) == 1
    assert evaluations(SOLVERS["heun"]) == 2
    assert evaluations(SOLVERS["sa_solver_pece"]) == pytest.approx(2, abs=0.02)
