"""Outputs of nodes to takes: encoded, hashed and made durable on the media threads."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

from inline_core.engine.plan import Plan
from inline_core.engine.wiring import images_of
from inline_core.graph.document import SCHEMA_VERSION
from inline_core.graph.order import closure
from inline_core.media.kinds import MediaKind
from inline_core.media.png import encode_png
from inline_core.media.values import Image
from inline_core.runs.records import new_take_id, now_ms
from inline_core.takes.files import ContentFiles
from inline_core.takes.take import Take
from inline_core.version import __version__


@dataclass(frozen=True, slots=True)
class TakeSource:
    """Which node of which run an output belongs to, and what made it."""

    run_id: str
    node_id: str
    params: Mapping[str, Any]
    warnings: tuple[str, ...]


class TakeSaver:
    """Writes takes; the files stay pinned until `release` (see `ContentFiles.write`)."""

    def __init__(self, files: ContentFiles, pool: Executor, *, metadata: bool) -> None:
        self._files = files
        self._pool = pool
        self._metadata = metadata

    def save(self, plan: Plan, source: TakeSource, outputs: Mapping[str, Any]) -> tuple[Take, ...]:
        """Make every picture among the outputs a take; blocks the walker, not the device.

        Raises: DiskFull.
        """
        node = plan.graph.by_id[source.node_id]
        recipe = resolved_graph(plan, source.node_id) if self._metadata else None
        futures: list[Future[Take]] = []
        for port in plan.specs[node.type].outputs:
            for image in images_of(outputs.get(port.id)):
                futures.append(self._pool.submit(self._save, source, port.id, image, recipe))  # noqa: PERF401
        return tuple(future.result() for future in futures)

    def release(self, takes: tuple[Take, ...]) -> None:
        """The rows of these takes are stored, or never will be."""
        for take in takes:
            self._files.release(take.sha256)

    def _save(
        self, source: TakeSource, port: str, image: Image, recipe: Mapping[str, Any] | None
    ) -> Take:
        made_by = dict(image.provenance)
        seed = made_by.get("seed")
        params = {**source.params, **({"seed": seed} if seed is not None else {})}
        if source.warnings:
            made_by["warnings"] = list(source.warnings)
        chunk = None
        if recipe is not None:
            chunk = {"version": __version__, **recipe, "params": params, "provenance": made_by}
        data = encode_png(image, chunk)
        sha256 = self._files.write(data, "png")
        return Take(
            id=new_take_id(),
            run_id=source.run_id,
            node_id=source.node_id,
            kind=MediaKind.IMAGE,
            extension="png",
            sha256=sha256,
            size_bytes=len(data),
            params=params,
            created_at_ms=now_ms(),
            provenance=made_by,
            port=port,
            width=image.width,
            height=image.height,
        )


def resolved_graph(plan: Plan, target: str) -> dict[str, Any]:
    """A graph that makes the same picture again: the closure of `target`, every param settled."""
    wanted = closure(plan.graph, [target])
    nodes = [
        {
            "id": node.id,
            "type": node.type,
            "params": {
                key: value for key, value in plan.params[node.id].items() if value is not None
            },
            "inputs": {
                port: [{"from": edge.source, "output": edge.output} for edge in edges]
                for port, edges in node.inputs.items()
            },
        }
        for node in plan.graph.nodes
        if node.id in wanted
    ]
    return {"graph": {"schemaVersion": SCHEMA_VERSION, "nodes": nodes}, "target": target}
