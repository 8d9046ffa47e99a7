"""Command-line flags of the server, and how they become settings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from inline_core.errors import InvalidRequest
from inline_core.settings import Settings


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """Add every flag of the server; each overrides its `INLINE_*` variable."""
    network = parser.add_argument_group("network")
    network.add_argument(
        "--listen",
        nargs="?",
        const="0.0.0.0",  # noqa: S104 - asked for by this very flag, and then a token is needed
        metavar="ADDRESS",
        dest="host",
        help="listen beyond this machine (needs a token, which is made up and printed)",
    )
    network.add_argument("--port", type=int, help="port (8848; 0 takes a free one)")
    network.add_argument("--token", help="access token")
    network.add_argument(
        "--no-auth", action="store_true", default=None, help="no token, even with --listen"
    )
    network.add_argument("--root-path", help="URL prefix behind a reverse proxy")
    network.add_argument(
        "--allowed-host", action="append", dest="allowed_hosts", help="a Host name to accept"
    )
    network.add_argument(
        "--allowed-origin", action="append", dest="allowed_origins", help="a web origin to accept"
    )
    folders = parser.add_argument_group("folders")
    folders.add_argument("--models-dir", type=Path, help="models folder (./models)")
    folders.add_argument(
        "--extra-models-dir",
        type=Path,
        action="append",
        dest="extra_models_dirs",
        help="one more models folder, read-only",
    )
    folders.add_argument("--data-dir", type=Path, help="database, takes, assets (./.inline)")
    folders.add_argument(
        "--input-dir", type=Path, help="files that workflows read by name (./.inline/input)"
    )
    folders.add_argument(
        "--front-end-root", type=Path, dest="frontend_root", help="a built front end to serve at /"
    )
    folders.add_argument(
        "--allow-root",
        type=Path,
        action="append",
        dest="allowed_roots",
        help='a folder that `ref:"path"` inputs may read',
    )
    memory = parser.add_argument_group("device and memory")
    memory.add_argument("--profile", choices=["auto", "gpu-max", "lowvram", "cpu"])
    memory.add_argument(
        "--lowvram", action="store_const", const="lowvram", dest="profile", help="little memory"
    )
    memory.add_argument("--vram-budget", type=int, metavar="MIB", help="cap of device memory")
    memory.add_argument(
        "--smart-memory",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="keep models warm between runs",
    )
    memory.add_argument(
        "--multi-gpu", action="store_true", default=None, help="split work over several GPUs"
    )
    memory.add_argument(
        "--parallel",
        metavar="SPEC",
        help="how one picture is split: auto, off, or degrees such as ulysses=2,ring=2",
    )
    memory.add_argument("--threads", type=int, help="CPU threads for torch")
    other = parser.add_argument_group("other")
    other.add_argument("--start-paused", action="store_true", default=None)
    other.add_argument(
        "--demo-model",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="offer the small bundled model",
    )
    other.add_argument("--log-level", choices=["debug", "info", "warning", "error"])


def settings_from(namespace: argparse.Namespace) -> Settings:
    """Settings from the environment, overridden by the flags that were given.

    Raises: InvalidRequest, naming the setting.
    """
    given: dict[str, Any] = {
        name: value
        for name, value in vars(namespace).items()
        if name in Settings.model_fields and value is not None
    }
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        message = f"Setting INLINE_{name.upper()}: {first['msg']} (got {first['input']!r})."
        raise InvalidRequest(message) from error
