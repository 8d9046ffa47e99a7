"""Facts about what made a picture, for its provenance."""

from __future__ import annotations

import importlib.metadata
from typing import Any, Final

from inline_core.loading.adapters import MatchedAdapter

_LIBRARIES: Final = ("inline-core", "torch", "diffusers", "transformers", "safetensors")


def adapter_facts(matched: MatchedAdapter) -> dict[str, Any]:
    """What of an adapter was used."""
    adapter = matched.adapter
    return {
        "name": adapter.name,
        "stamp": adapter.stamp,
        "strength": adapter.strength,
        "modules": len(matched.modules),
        "unmatched": len(matched.unmatched),
    }


def library_versions() -> dict[str, str]:
    """The versions of the libraries that pixels depend on, as far as they are installed."""
    versions: dict[str, str] = {}
    for name in _LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
