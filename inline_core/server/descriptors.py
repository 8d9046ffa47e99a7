"""The served node types, made anew only when the models folder changes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inline_core.devices.ladder import Plan
from inline_core.engine.estimate import plan_json
from inline_core.graph.spec import NodeSpec
from inline_core.loading.catalog import Catalog
from inline_core.server.wire import descriptor


@dataclass(frozen=True, slots=True)
class Registry:
    """All descriptors, their version and the JSON of the whole reply."""

    version: str
    models: Mapping[str, Mapping[str, Any]]
    body: bytes


class Descriptors:
    """Gives the current `Registry`; any thread."""

    def __init__(
        self,
        specs: Mapping[str, NodeSpec],
        catalog: Catalog,
        plan_of: Callable[[NodeSpec], Plan | None],
    ) -> None:
        self._specs = specs
        self._catalog = catalog
        self._plan_of = plan_of
        self._lock = threading.Lock()
        self._made_for: str | None = None
        self._registry: Registry | None = None

    def current(self) -> Registry:
        """The registry for the files that are there now."""
        files = self._catalog.version()
        with self._lock:
            if self._registry is None or self._made_for != files:
                self._registry = self._make(files)
                self._made_for = files
            return self._registry

    def _describe(self, spec: NodeSpec) -> dict[str, Any]:
        body = descriptor(spec, self._catalog)
        plan = self._plan_of(spec)
        if plan is not None:
            # Free memory changes all the time; the descriptors only with the files.
            body["estimate"] = plan_json(plan, {})
        return body

    def _make(self, files: str) -> Registry:
        models = {name: self._describe(spec) for name, spec in self._specs.items()}
        listed = list(models.values())
        content = json.dumps([files, listed], sort_keys=True).encode()
        version = f"r_{hashlib.sha256(content).hexdigest()[:8]}"
        body = json.dumps({"registryVersion": version, "models": listed}).encode()
        return Registry(version, models, body)
