"""Outputs of nodes to takes: encoded, hashed and made durable on the media threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Final

from inline_core.engine.plan import Plan
from inline_core.engine.recipe import Place, Recipe, only, places, settled
from inline_core.engine.wiring import images_of
from inline_core.media.kinds import MediaKind
from inline_core.media.png import encode_png
from inline_core.media.values import Image
from inline_core.runs.records import new_take_id, now_ms
from inline_core.takes.files import ContentFiles
from inline_core.takes.take import Take
from inline_core.version import __version__

POLL_S: Final = 0.1


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

    def save(
        self,
        plan: Plan,
        source: TakeSource,
        outputs: Mapping[str, Any],
        check: Callable[[], None],
    ) -> tuple[Take, ...]:
        """Make every picture among the outputs a take; blocks the walker, not the device.

        `check` is asked meanwhile; when it raises, none of the pictures becomes a take.
        Raises: DiskFull, and whatever `check` raises.
        """
        node = plan.graph.by_id[source.node_id]
        pictures = [
            (port.id, image)
            for port in plan.specs[node.type].outputs
            for image in images_of(outputs.get(port.id))
        ]
        whole = settled(plan.graph, plan.params, node.id) if self._metadata else None
        futures: list[Future[Take]] = []
        for (_, image), place in zip(pictures, places([port for port, _ in pictures]), strict=True):
            futures.append(self._pool.submit(self._save, source, image, place, whole))
        try:
            return tuple(_when_done(future, check) for future in futures)
        except BaseException:
            for future in futures:
                future.add_done_callback(self._forget)
            raise

    def _forget(self, future: Future[Take]) -> None:
        """Let go of a file that no row will refer to."""
        if not future.cancelled() and future.exception() is None:
            self.release((future.result(),))

    def release(self, takes: tuple[Take, ...]) -> None:
        """The rows of these takes are stored, or never will be."""
        for take in takes:
            self._files.release(take.sha256)

    def _save(self, source: TakeSource, image: Image, place: Place, whole: Recipe | None) -> Take:
        made_by = dict(image.provenance)
        seed = made_by.get("seed")
        params = {**source.params, **({"seed": seed} if seed is not None else {})}
        if source.warnings:
            made_by["warnings"] = list(source.warnings)
        chunk = None
        if whole is not None:
            recipe = only(whole, place)
            chunk = {
                "version": __version__,
                "graph": recipe.graph,
                "target": recipe.target,
                "index": place.index,
                "count": place.count,
                "params": params,
                "provenance": made_by,
            }
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
            port=place.port,
            width=image.width,
            height=image.height,
        )


def _when_done(future: Future[Take], check: Callable[[], None]) -> Take:
    """Wait for a take, and ask `check` meanwhile."""
    while True:
        try:
            return future.result(POLL_S)
        except TimeoutError:
            if future.done():
                raise
            check()
