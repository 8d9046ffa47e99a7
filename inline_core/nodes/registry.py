"""All node types: the built-in ones, and those of installed packages (`inline_core.nodes`)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType, ModuleType

from inline_core.graph.spec import NodeSpec
from inline_core.nodes import (
    generate,
    generate_flux2,
    image,
    inputs,
    latent,
    load,
    patches,
    sample,
    sigmas,
)
from inline_core.nodes.base import spec_of

_BUILTIN: tuple[ModuleType, ...] = (
    inputs,
    sample,
    latent,
    image,
    load,
    patches,
    generate,
    generate_flux2,
    sigmas,
)
ENTRY_POINT_GROUP = "inline_core.nodes"


def node_specs() -> Mapping[str, NodeSpec]:
    """Every node type by name.  Raises: ValueError if two claim the same name."""
    specs: dict[str, NodeSpec] = {}
    modules = list(_BUILTIN)
    modules.extend(entry.load() for entry in entry_points(group=ENTRY_POINT_GROUP))
    for module in modules:
        for function in vars(module).values():
            if not hasattr(function, "node_spec") or function.__module__ != module.__name__:
                continue
            spec = spec_of(function)
            if spec.type in specs:
                message = f"two nodes are named {spec.type!r}"
                raise ValueError(message)
            specs[spec.type] = spec
    return MappingProxyType(specs)
