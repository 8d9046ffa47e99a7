"""Durable events: what happened to a run, in order, each with a `seq`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    """Types of durable events; the values are the frame types of the wire."""

    QUEUED = "queued"
    STARTED = "run_started"
    NODE_STARTED = "node_started"
    NODE_DONE = "node_done"
    RUN_DONE = "run_done"
    CANCELLED = "cancelled"
    ERROR = "error"

    @property
    def is_terminal(self) -> bool:
        """True for the last event a run can have."""
        return self in {EventType.RUN_DONE, EventType.CANCELLED, EventType.ERROR}


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the log.  `seq` grows over all runs and never repeats; `at_ms` is epoch time."""

    seq: int
    run_id: str
    type: EventType
    payload: Mapping[str, Any]
    at_ms: int
