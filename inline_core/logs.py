"""Logging: one line an event, with the run and the node it belongs to."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logs(level: str, *, as_json: bool) -> None:
    """Send all logs (ours and the libraries') to standard error as UTF-8 lines.

    Context bound with `structlog.contextvars` (run and node ids) is on every line.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        # Not rich's tracebacks, which come with it where it is installed: they print all local
        # variables, so thousands of lines, for seconds, with whatever secrets are in them.
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    processors: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=False),
    ]
    if as_json:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
