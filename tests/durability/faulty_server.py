"""A server with the faulty test nodes, in a process that was forked for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from inline_core.logs import configure_logs
from inline_core.server import serve
from inline_core.server.services import build_services
from inline_core.settings import Settings
from tests.durability.hops import install
from tests.fault_nodes import specs_with_faults


def run(data: Path, models: Path, environment: Mapping[str, str], log: Path) -> None:
    """Serve until the process is told to end; what it prints is added to `log`."""
    os.environ.clear()
    os.environ.update(environment)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    settings = Settings(
        data_dir=data,
        models_dir=models,
        port=0,
        demo_model=False,
        threads=1,
        warm_up=False,
    )
    configure_logs("info", as_json=True)
    install(os.environ.get("INLINE_TEST_DIE_AT"))
    serve.serve(settings, build_services(settings, specs_with_faults()))
