"""The states a run and a node can be in, and which changes are allowed."""

from __future__ import annotations

from enum import StrEnum


class RunStatus(StrEnum):
    """Where a run is; `done`, `error` and `cancelled` are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    ERROR = "error"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """True when nothing about the run will change any more."""
        return self in _FINAL


_FINAL = frozenset({RunStatus.DONE, RunStatus.ERROR, RunStatus.CANCELLED})


class NodeState(StrEnum):
    """Where a node of a run is."""

    QUEUED = "queued"
    RUNNING = "running"
    CACHED = "cached"
    DONE = "done"
    ERROR = "error"

    @property
    def is_complete(self) -> bool:
        """True when the node's result exists."""
        return self in {NodeState.CACHED, NodeState.DONE}
