"""The version of this release, from the installed package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def _read() -> str:
    try:
        return version("inline-core")
    except PackageNotFoundError:
        # Run from a checkout that was never installed.
        return "0.1.0"


__version__ = _read()
