"""Small JSON files that keep what a server learnt: worth having, never worth failing for."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import structlog

_log = structlog.get_logger(__name__)


def read_kept(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if there is none, or it makes no sense (that is logged)."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        told_anew(path, str(error))
        return None
    if not isinstance(document, dict):
        told_anew(path, "it is no JSON object")
        return None
    return document


def write_kept(path: Path, document: dict[str, Any]) -> None:
    """Write an object in one go; a full or read-only disk is logged and costs nothing else."""
    temporary = path.with_suffix(f".{os.getpid()}.part")
    try:
        temporary.write_text(json.dumps(document), "utf-8")
        temporary.replace(path)
    except OSError as error:
        _log.warning("what was learnt is not kept", file=path.name, why=str(error))
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def told_anew(path: Path, why: str) -> None:
    """Say in the log that a file is not used."""
    _log.warning("a kept file is not used; its content is learnt anew", file=path.name, why=why)
