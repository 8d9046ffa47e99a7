"""ComfyUI's values, as written down in vectors.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inline_core.sampling.sigmas.tables import EpsTable, FlowTable, SigmaTable, flux_table

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())
EXTRA: dict[str, Any] = VECTORS["extra"]
TABLES: dict[str, SigmaTable] = {
    "sd15_eps": EpsTable(),
    "flow_shift_3.0": FlowTable(3.0, 1000.0),
    "flow_shift_1.0": FlowTable(),
    "flow_shift_1.73_auraflow_mult1": FlowTable(1.73),
    "flow_shift_5.0": FlowTable(5.0, 1000.0),
    "flow_shift_8.0": FlowTable(8.0, 1000.0),
    "flux_mu_1.15": flux_table(1.15),
}


def close(got: Sequence[float], wanted: Sequence[float]) -> bool:
    if len(got) != len(wanted):
        return False
    pairs = zip(got, wanted, strict=True)
    return all(abs(left - right) <= max(2e-5 * abs(right), 1e-6) for left, right in pairs)
