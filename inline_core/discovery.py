"""Finds what adds itself by lying in a folder, so that no list of it has to be kept."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from types import ModuleType


def submodules(package: str, name: str) -> tuple[ModuleType, ...]:
    """The module `name` of every package within `package` that has one, sorted by package.

    `submodules("inline_core.families", "family")` gives `inline_core.families.flux2.family`, ...
    Raises: whatever importing one of them raises.
    """
    root = importlib.import_module(package)
    inner = sorted(entry.name for entry in pkgutil.iter_modules(root.__path__) if entry.ispkg)
    modules = (f"{package}.{folder}.{name}" for folder in inner)
    return tuple(
        importlib.import_module(module) for module in modules if importlib.util.find_spec(module)
    )
