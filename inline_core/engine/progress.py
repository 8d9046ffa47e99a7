"""Fleeting progress: one overwritten slot per node of a running run, never stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from inline_core.engine.preview_pace import PreviewPace

# Enough to tell a WebP, which moving previews are, from a JPEG.
_WEBP_START: Final = 12
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """How far a node is.  `fraction` is 0..1 and never falls; `version` grows with each change."""

    node_id: str
    fraction: float
    phase: str
    status: str
    version: int
    step: int | None = None
    step_count: int | None = None
    eta_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """The newest preview of a node: a JPEG, or an animated WebP."""

    node_id: str
    data: bytes
    version: int
    step: int | None

    @property
    def media_type(self) -> str:
        """`image/jpeg` or `image/webp`, by its first bytes."""
        head = self.data[:_WEBP_START]
        return "image/webp" if head[:4] == b"RIFF" and head[8:] == b"WEBP" else "image/jpeg"


@dataclass(frozen=True, slots=True)
class Overview:
    """A running run in two numbers: nodes that are complete, and how far the current one is."""

    finished: int = 0
    current: float = 0.0


@dataclass(slots=True)
class _RunProgress:
    pace: PreviewPace
    finished: set[str] = field(default_factory=set)
    slots: dict[str, NodeProgress] = field(default_factory=dict)
    previews: dict[str, Preview] = field(default_factory=dict)
    version: int = 0
    watchers: int = 0


class ProgressBoard:
    """Written by walkers and the device thread, read by sockets; any thread.

    `notify(run_id)` is called after each change; it must not block.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._runs: dict[str, _RunProgress] = {}
        self._watchers: dict[str, int] = {}
        self._preview_cost_s = 0.0
        self._lock = threading.Lock()

    def update(
        self,
        run_id: str,
        node_id: str,
        phase: str,
        fraction: float,
        status: str = "",
        *,
        step: int | None = None,
        step_count: int | None = None,
        eta_ms: int | None = None,
    ) -> None:
        """Overwrite the slot of a node; a fraction lower than the last one is raised to it."""
        with self._lock:
            run = self._of(run_id)
            before = run.slots.get(node_id)
            floor = before.fraction if before is not None else 0.0
            run.version += 1
            run.slots[node_id] = NodeProgress(
                node_id,
                min(1.0, max(floor, fraction)),
                phase,
                status,
                run.version,
                step,
                step_count,
                eta_ms,
            )
        self._notify(run_id)

    def finish(self, run_id: str, node_id: str) -> None:
        """A node is complete; its slot stays as it was for those who still have to read it."""
        with self._lock:
            self._of(run_id).finished.add(node_id)

    def overview(self, run_id: str) -> Overview:
        """How far a running run is; it never falls."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return Overview()
            current = max(
                (s.fraction for s in run.slots.values() if s.node_id not in run.finished),
                default=0.0,
            )
            return Overview(len(run.finished), current)

    def offer_preview(self, run_id: str, node_id: str, encode: Callable[[], bytes]) -> None:
        """Encode and keep a preview, if somebody watches and `PreviewPace` lets it.

        One that cannot be made is left out: a preview never ends a run.
        """
        with self._lock:
            run = self._runs.get(run_id)
            watched = self._watchers.get(run_id, 0) > 0
            if run is None or not watched or not run.pace.due():
                return
        try:
            data = run.pace.make(encode)
        except Exception as error:  # noqa: BLE001 - whatever a model or an encoder may raise
            _log.warning("a preview was left out", run=run_id, node=node_id, why=str(error))
            return
        with self._lock:
            self._preview_cost_s = run.pace.cost_s
            run.version += 1
            slot = run.slots.get(node_id)
            step = slot.step if slot is not None else None
            run.previews[node_id] = Preview(node_id, data, run.version, step)
        self._notify(run_id)

    def watch(self, run_id: str, change: int) -> None:
        """One more (+1) or one fewer (-1) reader wants previews of a run."""
        with self._lock:
            count = self._watchers.get(run_id, 0) + change
            if count > 0:
                self._watchers[run_id] = count
            else:
                self._watchers.pop(run_id, None)

    def slots(self, run_id: str) -> Mapping[str, NodeProgress]:
        """The newest progress of each node that reported any."""
        with self._lock:
            run = self._runs.get(run_id)
            return dict(run.slots) if run is not None else {}

    def changed(self, run_id: str, version: int) -> tuple[list[NodeProgress], list[Preview]]:
        """Slots and previews newer than `version`, oldest first."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or run.version <= version:
                return [], []
            slots = [slot for slot in run.slots.values() if slot.version > version]
            previews = [entry for entry in run.previews.values() if entry.version > version]
        return sorted(slots, key=lambda slot: slot.version), previews

    def _of(self, run_id: str) -> _RunProgress:
        """The progress of a run, from now on if there was none (under the lock)."""
        run = self._runs.get(run_id)
        if run is None:
            run = self._runs[run_id] = _RunProgress(PreviewPace(self._preview_cost_s))
        return run

    def forget(self, run_id: str) -> None:
        """The run is over."""
        with self._lock:
            self._runs.pop(run_id, None)
