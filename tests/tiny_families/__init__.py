"""Tiny random components of every family, one module each, in the layouts people download.

A module has `NAME` (the family), `save_models(folder)`, which writes a models folder that holds
nothing but this family, `RUNS` (one-click runs over the wire) and `pipeline()`, diffusers' own
pipeline on the same weights.  `SMALLER` may hold (name of a constant, value) that runs are made with,
where a family brings pictures to a megapixel by itself.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class FamilyRun:
    """One one-click node with its params, and what its takes are.

    `takes` are (kind, extension) in order; `fps` and `seconds` those of a video.  `images` names
    ports that get a drawn picture of (width, height), `masks` ports that get a mask of its middle.
    `same_as` has the params of the primitive graph (`cfg`, ...) that gives the same picture.
    """

    node: str
    params: Mapping[str, Any] = field(default_factory=dict)
    size: tuple[int, int] = (64, 64)
    takes: tuple[tuple[str, str], ...] = (("image", "png"),)
    fps: float | None = None
    seconds: float | None = None
    images: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    masks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    same_as: Mapping[str, Any] | None = None


def families() -> list[ModuleType]:
    """The modules of all families, by name."""
    found = sorted(entry.name for entry in pkgutil.iter_modules(__path__))
    return [importlib.import_module(f"{__name__}.{name}") for name in found]
