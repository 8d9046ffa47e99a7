"""A server with the faulty test nodes: `python -m tests.durability.faulty_server DATA MODELS`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from inline_core.logs import configure_logs
from inline_core.server import serve as serving
from inline_core.server.services import build_services
from inline_core.settings import Settings
from tests.durability.hops import install
from tests.fault_nodes import specs_with_faults


def main() -> None:
    data, models = sys.argv[1:3]
    settings = Settings(
        data_dir=Path(data),
        models_dir=Path(models),
        port=0,
        demo_model=False,
        threads=1,
        warm_up=False,
    )
    configure_logs("info", as_json=True)
    install(os.environ.get("INLINE_TEST_DIE_AT"))
    serving.serve(settings, build_services(settings, specs_with_faults()))


if __name__ == "__main__":
    main()
