"""`python -m inline_core.server`: one server process, without supervision."""

from __future__ import annotations

import argparse
import sys

from inline_core.errors import InlineError
from inline_core.flags import add_server_flags, settings_from
from inline_core.logs import configure_logs
from inline_core.server.serve import serve

EXIT_CONFIGURATION = 2


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal ends it; gives the exit code (2: the configuration is at fault)."""
    parser = argparse.ArgumentParser(prog="inline-core serve", description=__doc__)
    add_server_flags(parser)
    try:
        settings = settings_from(parser.parse_args(arguments))
        configure_logs(settings.log_level, as_json=settings.log_json)
        serve(settings)
    except InlineError as error:
        print(f"Cannot start: {error.message}", file=sys.stderr)  # noqa: T201
        return EXIT_CONFIGURATION
    return 0


if __name__ == "__main__":
    sys.exit(main())
