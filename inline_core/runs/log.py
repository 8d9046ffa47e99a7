"""The live end of the event log: recent events in memory, and wake-ups for those who read it.

A wake-up is only a hint.  Every reader pulls from its own `seq`, from memory where the log of a run
still begins there, else from the database, so nothing is lost, doubled or out of order.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from inline_core.runs.events import Event, EventType
from inline_core.runs.queries import Queries

_RUNS_IN_MEMORY = 256
_EVENTS_PER_RUN = 4096

Listener = Callable[[str], None]


@dataclass(slots=True)
class _Tail:
    """Events of one run since `complete_from`, without a gap."""

    complete_from: int
    events: list[Event] = field(default_factory=list)


class EventLog:
    """Readers ask `after`; listeners are told which run has news.  Any thread."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._tails: OrderedDict[str, _Tail] = OrderedDict()
        self._lock = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()

    def listen(self, listener: Listener) -> None:
        """Call `listener(run_id)` after each commit with news; it must not block."""
        self._listeners = (*self._listeners, listener)

    def published(self, events: Sequence[Event]) -> None:
        """Take in committed events, in order (called by the database's writer thread)."""
        with self._lock:
            for event in events:
                self._append(event)
        for run_id in dict.fromkeys(event.run_id for event in events):
            self.notify(run_id)

    def notify(self, run_id: str) -> None:
        """Tell the listeners that a run has news (also used for progress, which has no event)."""
        for listener in self._listeners:
            listener(run_id)

    def after(self, run_id: str, seq: int) -> list[Event]:
        """The events of a run after `seq`, in order."""
        with self._lock:
            tail = self._tails.get(run_id)
            if tail is not None and seq >= tail.complete_from:
                return [event for event in tail.events if event.seq > seq]
        return self._queries.events_after(run_id, seq)

    def _append(self, event: Event) -> None:
        tail = self._tails.get(event.run_id)
        if tail is None:
            # A run is in memory from its first event on, or not at all.
            if event.type is not EventType.QUEUED or event.payload.get("recovered"):
                return
            tail = _Tail(complete_from=0)
            self._tails[event.run_id] = tail
            if len(self._tails) > _RUNS_IN_MEMORY:
                self._tails.popitem(last=False)
        tail.events.append(event)
        if event.type.is_terminal:
            # Whoever still has to read the end finds it in the database.
            del self._tails[event.run_id]
        elif len(tail.events) > _EVENTS_PER_RUN:
            half = len(tail.events) // 2
            tail.complete_from = tail.events[half - 1].seq
            del tail.events[:half]
