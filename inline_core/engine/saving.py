"""Outputs of nodes to takes: encoded, hashed and made durable on the media threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Final

from inline_core.engine.plan import Plan
from inline_core.engine.recipe import Place, Recipe, only, places, settled
from inline_core.engine.take_files import AudioFormat, notes_on, release, store
from inline_core.engine.wiring import media_of
from inline_core.media.values import Clip, Image, Waveform
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

    def __init__(
        self,
        files: ContentFiles,
        pool: Executor,
        *,
        metadata: bool,
        audio_format: AudioFormat = "wav",
    ) -> None:
        self._files = files
        self._pool = pool
        self._metadata = metadata
        self._audio_format = audio_format

    def notes(self, outputs: Mapping[str, Any]) -> list[str]:
        """What people should know of how these outputs will be stored (odd sizes, clipping)."""
        return notes_on(outputs, self._audio_format)

    def save(
        self,
        plan: Plan,
        source: TakeSource,
        outputs: Mapping[str, Any],
        check: Callable[[], None],
    ) -> tuple[Take, ...]:
        """Make every picture, video and sound among the outputs a take; blocks the walker only.

        `check` is asked meanwhile, by this thread and by those that encode; when it raises, none
        of them becomes a take.
        Raises: DiskFull, EncodingFailed, NotFinite, InvalidParam, and whatever `check` raises.
        """
        node = plan.graph.by_id[source.node_id]
        parts = [
            (port.id, value)
            for port in plan.specs[node.type].outputs
            for value in media_of(outputs.get(port.id))
        ]
        whole = settled(plan.graph, plan.params, node.id) if self._metadata else None
        futures: list[Future[Take]] = []
        for (_, value), place in zip(parts, places([port for port, _ in parts]), strict=True):
            futures.append(self._pool.submit(self._save, source, value, place, whole, check))
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
        release(self._files, takes)

    def _save(
        self,
        source: TakeSource,
        value: Image | Clip | Waveform,
        place: Place,
        whole: Recipe | None,
        check: Callable[[], None],
    ) -> Take:
        made_by = dict(value.provenance)
        seed = made_by.get("seed")
        params = {**source.params, **({"seed": seed} if seed is not None else {})}
        if source.warnings:
            made_by["warnings"] = list(source.warnings)
        facts = None
        if whole is not None:
            recipe = only(whole, place) if isinstance(value, Image) else whole
            facts = {
                "version": __version__,
                "graph": recipe.graph,
                "target": recipe.target,
                "index": place.index,
                "count": place.count,
                "params": params,
                "provenance": made_by,
            }
        stored = store(self._files, value, facts, self._audio_format, check)
        return Take(
            id=new_take_id(),
            run_id=source.run_id,
            node_id=source.node_id,
            kind=stored.kind,
            extension=stored.extension,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
            params=params,
            created_at_ms=now_ms(),
            provenance=made_by,
            port=place.port,
            **stored.facts,
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
