"""All entries of the mapping, by ComfyUI's name of the node type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Final

from inline_core.importers.comfyui.mapping.step import Entry

_SUBJECTS: Final = (
    "loaders",
    "sampling",
    "conditioning",
    "latents",
    "model_patches",
    "families",
    "families_images",
    "families_wan",
    "flow",
    "pictures",
    "masks",
    "media",
    "words",
    "writing",
)


@cache
def entries() -> Mapping[str, Entry]:
    """Every entry by class type.  Raises: ValueError if two modules claim the same one."""
    found: dict[str, Entry] = {}
    for subject in _SUBJECTS:
        module = import_module(f"{__package__}.{subject}")
        for name, entry in module.ENTRIES.items():
            if name in found:
                message = f"two entries are there for {name!r}"
                raise ValueError(message)
            found[name] = entry
    return MappingProxyType(found)
