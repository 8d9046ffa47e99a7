"""Fixtures that several test folders share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from _pytest.nodeid import coerce_node_id

from inline_core.settings import Settings
from tests import tiny
from tests.fault_nodes import GATE, specs_with_faults
from tests.live import LiveServer, live_server

# Servers in this process log as theirs do: without the local variables of every frame.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of one `xdist_group` run in one worker.

    xdist 3.8 writes the name of the group where pytest 9.2 does not look any more.
    """
    if not config.getoption("loadgroup", default=False):  # only workers have it
        return
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if group is not None and not item.nodeid.endswith(f"@{group.args[0]}"):
            named: Any = item
            named._id = coerce_node_id(f"{item.nodeid}@{group.args[0]}")


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models folder with tiny random Z-Image weights in the real layouts."""
    folder = tmp_path_factory.mktemp("models")
    tiny.save_models(folder)
    return folder


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a server without any model."""
    return Settings(
        data_dir=tmp_path / "data",
        models_dir=tmp_path / "models",
        demo_model=False,
        threads=1,
        allowed_roots=[tmp_path / "allowed"],
    )


@pytest.fixture
def server(settings: Settings) -> Iterator[LiveServer]:
    """A fresh server with the faulty nodes and no models."""
    GATE.reset()
    with live_server(settings, specs_with_faults()) as running:
        yield running
        GATE.open.set()


@pytest.fixture(scope="module")
def tiny_server(
    tiny_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    """A server with tiny Z-Image weights, shared by the tests of a module."""
    folder = tmp_path_factory.mktemp("server")
    wanted = Settings(
        data_dir=folder / "data",
        models_dir=tiny_models,
        demo_model=False,
        threads=1,
        walkers=1,
        allowed_roots=[folder / "allowed"],
    )
    (folder / "allowed").mkdir()
    with live_server(wanted, specs_with_faults()) as running:
        yield running
