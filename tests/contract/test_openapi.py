"""The OpenAPI document describes what the server does: no 5xx, no undocumented status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from inline_core.settings import Settings
from tests.fault_nodes import specs_with_faults
from tests.lengths import at_length
from tests.live import LiveServer, live_server

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder: Path = tmp_path_factory.mktemp("openapi")
    wanted = Settings(
        data_dir=folder / "data", models_dir=folder / "models", demo_model=False, warm_up=False, max_queue=50,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, live_server(wanted, specs_with_faults()) as running:
        patch.setenv("HF_HUB_OFFLINE", "1")  # generated downloads must not look for a hub
        run = running.submit([{"id": "a", "type": "test/paint"}], "a", wait=20)
        assert run.json()["status"] == "done"
        yield running


@pytest.mark.timeout(240)
def test_every_operation(documented: LiveServer) -> None:
    """Generated requests against each operation; all failures are told, not only the first."""
    api = schemathesis.openapi.from_url(f"{documented.url}/openapi.json")
    failures: list[str] = []
    operations, sent = 0, Counter[str]()
    for result in api.get_all_operations():
        operation = result.ok()
        # Streams and metrics are text, and a stream of a live run does not end by itself.
        if operation.path.endswith(("/events", "/metrics")):
            continue
        operations += 1
        for mode in GenerationMode:
            try:
                sent[mode.value] += _hammer(operation, mode)
            except (AssertionError, BaseExceptionGroup) as error:
                where = f"{operation.method.upper()} {operation.path} ({mode.value})"
                failures.append(f"{where}: {_told(error)}")
            except Unsatisfiable:
                continue  # nothing wrong can be said to an operation without parameters
    assert operations >= 25
    assert min(sent.values()) >= at_length(100, 60), sent
    assert not failures, "\n\n".join(failures)


def _hammer(operation: Any, mode: GenerationMode) -> int:
    sent = 0

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=at_length(12, 8),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    def run(case: Any) -> None:
        nonlocal sent
        sent += 1
        if case.query and "wait" in case.query:
            case.query["wait"] = 0
        case.call_and_validate(checks=CHECKS)

    run()
    return sent


def _told(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return " | ".join(_told(part) for part in error.exceptions)
    return str(error)[:1500]
