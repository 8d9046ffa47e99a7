"""Our server with the cheap test nodes, for measurement."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from inline_core.logs import configure_logs
from inline_core.server import serve as serving
from inline_core.server.services import build_services
from inline_core.settings import Settings


def main() -> None:
    """Serve on a free port until terminated; `server.json` in the data folder tells which."""
    data = Path(sys.argv[1])
    models = os.environ.get("INLINE_MODELS_DIR", data / "models")
    settings = Settings(data_dir=data, models_dir=Path(models), port=0)
    configure_logs(settings.log_level, as_json=False)
    specs = None
    if settings.warm_up is False:
        from tests.fault_nodes import specs_with_faults

        specs = specs_with_faults()
    serving.serve(settings, build_services(settings, specs))


if __name__ == "__main__":
    main()
