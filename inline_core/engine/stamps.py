"""Content behind the params of a node: model files and assets, for fingerprints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from inline_core.graph.fingerprint import ContentStamps
from inline_core.graph.model import Node
from inline_core.graph.spec import NodeSpec
from inline_core.loading.catalog import Catalog


class AssetStamps(Protocol):
    """Assets, as far as fingerprints go."""

    def stamp(self, reference: object) -> str:
        """Content hash of what an asset reference names."""


def content_stamps(catalog: Catalog, assets: AssetStamps) -> ContentStamps:
    """The `ContentStamps` of a models folder and an asset store."""

    def stamps(node: Node, spec: NodeSpec, params: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG001
        found: dict[str, str] = {}
        for param in spec.params:
            if param.options_from is not None:
                name = str(params.get(param.key) or "")
                # An optional file that was not picked has no content; one that the server picks
                # may change whenever the folder does.
                if name or param.key in {"file", "model", "vae", "text_encoder", "controlnet"}:
                    found[param.key] = _file_stamp(catalog, param.options_from, name)
            elif param.widget == "asset":
                found[param.key] = assets.stamp(params.get(param.key))
        return found

    return stamps


def _file_stamp(catalog: Catalog, category: str, name: str) -> str:
    """Identity of a file's content; of the whole folder for an empty or unknown name."""
    if name:
        for file in catalog.pickable(category):
            if file.name == name:
                return file.stamp
    return catalog.version()
