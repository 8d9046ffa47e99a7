"""The measuring code is that of `scripts/measure_solvers.py`, which also makes the reference page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[4] / "scripts"))

from measure_solvers import exact_end


@pytest.fixture(scope="session")
def exact() -> dict[bool, Tensor]:
    """The exact ends of the mixture's ODE, by process."""
    return {flow: exact_end(flow) for flow in (True, False)}
