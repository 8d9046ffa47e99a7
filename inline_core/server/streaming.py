"""Frames of runs to many readers: read once, serialised once, pulled by each at its own pace.

One feed per watched run.  It turns new log rows and changed progress slots into text once; each
socket keeps only a position in it, so a reader that stalls costs a position and nothing else.
Durable events are never dropped; progress is overwritten, so a slow reader sees the newest.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import structlog
from starlette.concurrency import run_in_threadpool

from inline_core.engine.progress import Preview, ProgressBoard
from inline_core.errors import InlineError
from inline_core.runs.events import Event, EventType
from inline_core.runs.log import EventLog
from inline_core.runs.queries import Queries
from inline_core.server.wire import event_frame, progress_frame, snapshot_frame
from inline_core.takes.take import Take

PROGRESS_INTERVAL_S = 0.1
_RETRY_S = 1.0
_log = structlog.get_logger(__name__)
_CONTRACT_EVENTS = frozenset(
    {
        EventType.STARTED,
        EventType.NODE_DONE,
        EventType.RUN_DONE,
        EventType.CANCELLED,
        EventType.ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, ready to send.  `seq` is None for progress and previews."""

    text: str | None
    type: str
    seq: int | None = None
    binary: bytes | None = None
    terminal: bool = False


@dataclass(slots=True)
class _Feed:
    """What all readers of one run share; touched on the event loop only."""

    run_id: str
    seq: int
    readers: int = 0
    order: int = 0
    events: list[tuple[int, Frame, Event]] = field(default_factory=list)
    slots: dict[str, tuple[int, Frame]] = field(default_factory=dict)
    previews: dict[str, tuple[int, Frame]] = field(default_factory=dict)
    done_nodes: set[str] = field(default_factory=set)
    version: int = 0
    pumping: bool = False
    dirty: bool = False
    wakes: set[asyncio.Event] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a reader asked for: resume point, all durable events, previews."""

    after: int | None = None
    all_events: bool = False
    previews: bool = False


class StreamHub:
    """Feeds by run.  `notify` may be called from any thread, the rest on the event loop."""

    def __init__(self, log: EventLog, queries: Queries, board: ProgressBoard) -> None:
        self._log = log
        self._queries = queries
        self._board = board
        self._feeds: dict[str, _Feed] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dirty: set[str] = set()
        self._scheduled = False
        self._closing = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say which event loop the readers live on."""
        self._loop = loop

    def close(self) -> None:
        """The server is stopping: end all streams; any thread, idempotent."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        self._closing.set()
        for feed in self._feeds.values():
            self._wake_readers(feed)

    @property
    def closing(self) -> bool:
        """True once the server is stopping."""
        return self._closing.is_set()

    @property
    def readers(self) -> int:
        """How many streams are open."""
        return sum(feed.readers for feed in self._feeds.values())

    def notify(self, run_id: str) -> None:
        """A run has news; a hint, coalesced; any thread."""
        if run_id not in self._feeds or self._loop is None:
            return
        self._dirty.add(run_id)
        if not self._scheduled:
            self._scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._flush)
            except RuntimeError:
                # The loop is closed: nobody is left to tell.
                self._scheduled = False

    def _flush(self) -> None:
        self._scheduled = False
        dirty, self._dirty = self._dirty, set()
        for run_id in dirty:
            feed = self._feeds.get(run_id)
            if feed is not None:
                self._kick(feed)

    def _kick(self, feed: _Feed) -> None:
        feed.dirty = True
        if not feed.pumping:
            feed.pumping = True
            task = asyncio.get_running_loop().create_task(self._pump(feed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, feed: _Feed) -> None:
        try:
            while feed.dirty and feed.readers:
                feed.dirty = False
                # Slots before events: what an event ends can then never be overtaken.
                slots, previews = self._board.changed(feed.run_id, feed.version)
                events, takes = await run_in_threadpool(self._news, feed.run_id, feed.seq)
                for slot in slots:
                    feed.version = max(feed.version, slot.version)
                    if slot.node_id not in feed.done_nodes:
                        feed.order += 1
                        text = json.dumps(progress_frame(feed.run_id, slot))
                        feed.slots[slot.node_id] = (feed.order, Frame(text, "progress"))
                for preview in previews:
                    feed.version = max(feed.version, preview.version)
                    feed.order += 1
                    frame = preview_frame(feed.run_id, preview)
                    feed.previews[preview.node_id] = (feed.order, frame)
                for event in events:
                    self._append(feed, event, takes)
                self._wake_readers(feed)
        except InlineError as error:
            # The log could not be read just now; the readers lose nothing by waiting.
            _log.warning("reading the log failed", run=feed.run_id, why=error.message)
            asyncio.get_running_loop().call_later(_RETRY_S, self._kick, feed)
        finally:
            feed.pumping = False

    def _news(self, run_id: str, seq: int) -> tuple[list[Event], dict[str, Take]]:
        """Log rows after `seq`, and the takes they name (worker thread)."""
        events = self._log.after(run_id, seq)
        wanted = [
            take_id
            for event in events
            if event.type is EventType.NODE_DONE
            for take_id in event.payload["takes"]
        ]
        return events, {take_id: self._queries.take(take_id) for take_id in wanted}

    @staticmethod
    def _append(feed: _Feed, event: Event, takes: dict[str, Take]) -> None:
        feed.order += 1
        feed.seq = event.seq
        node_id = event.payload.get("nodeId")
        if event.type is EventType.QUEUED:
            feed.done_nodes.clear()
        elif event.type is EventType.NODE_DONE and node_id is not None:
            feed.done_nodes.add(node_id)
            feed.slots.pop(node_id, None)
            feed.previews.pop(node_id, None)
        elif event.type.is_terminal:
            feed.slots.clear()
            feed.previews.clear()
        feed.events.append((feed.order, make_frame(event, takes), event))

    @staticmethod
    def _wake_readers(feed: _Feed) -> None:
        for wake in feed.wakes:
            wake.set()

    async def frames(self, run_id: str, options: StreamOptions) -> AsyncIterator[Frame]:
        """The stream of one reader, ending after a terminal frame (or when the server stops).

        Raises: NotFound before the first frame.
        """
        feed = self._feeds.get(run_id)
        if feed is None:
            feed = self._feeds.setdefault(run_id, _Feed(run_id, seq=-1))
        feed.readers += 1
        wake = asyncio.Event()
        feed.wakes.add(wake)
        if options.previews:
            self._board.watch(run_id, 1)
        try:
            async for frame in self._read(feed, wake, options):
                yield frame
        finally:
            if options.previews:
                self._board.watch(run_id, -1)
            feed.wakes.discard(wake)
            feed.readers -= 1
            if feed.readers == 0:
                self._feeds.pop(run_id, None)

    async def _read(
        self, feed: _Feed, wake: asyncio.Event, options: StreamOptions
    ) -> AsyncIterator[Frame]:
        opening, seq = await run_in_threadpool(self._opening, feed.run_id, options)
        for frame in opening:
            yield frame
            if frame.terminal:
                return
        if feed.seq < 0:
            feed.seq = seq
        self._kick(feed)
        async for frame in self._follow(feed, wake, options, seq):
            yield frame
            if frame.terminal:
                return

    def _opening(self, run_id: str, options: StreamOptions) -> tuple[list[Frame], int]:
        """Snapshot, or what the reader missed since `after` (worker thread).

        Raises: NotFound.
        """
        view = self._queries.run(run_id)
        final = view.head.status.is_final
        after = options.after
        if after is not None and after <= view.seq:
            events, takes = self._news(run_id, after)
            frames = [make_frame(event, takes) for event in events if _wanted(event, options)]
            seq = events[-1].seq if events else after
            if not final or (frames and frames[-1].terminal):
                return frames, seq
        # A resume point this log never had, or the end was seen already: start over.
        slots = self._board.slots(run_id)
        frame = snapshot_frame(view, slots, reset=after is not None)
        text = json.dumps(frame)
        return [Frame(text, "snapshot", view.seq, terminal=final)], view.seq

    async def _follow(
        self, feed: _Feed, wake: asyncio.Event, options: StreamOptions, seq: int
    ) -> AsyncIterator[Frame]:
        loop = asyncio.get_running_loop()
        position = 0
        shown = 0
        progress_at = 0.0
        while not self._closing.is_set():
            wake.clear()
            while position < len(feed.events):
                order, frame, event = feed.events[position]
                position += 1
                if event.seq > seq:
                    for slot in _pending(feed, shown, order, options):
                        shown = slot[0]
                        yield slot[1]
                    seq = event.seq
                    if _wanted(event, options):
                        yield frame
            if loop.time() - progress_at >= PROGRESS_INTERVAL_S:
                for slot in _pending(feed, shown, feed.order + 1, options):
                    shown = slot[0]
                    progress_at = loop.time()
                    yield slot[1]
            if position < len(feed.events) or wake.is_set():
                continue
            waiting = bool(_pending(feed, shown, feed.order + 1, options))
            delay = PROGRESS_INTERVAL_S - (loop.time() - progress_at) if waiting else None
            try:
                async with asyncio.timeout(delay):
                    await wake.wait()
            except TimeoutError:
                continue


def _pending(
    feed: _Feed, shown: int, before: int, options: StreamOptions
) -> list[tuple[int, Frame]]:
    """Progress (and previews, if asked for) between two points of the feed's order."""
    found = list(feed.slots.values())
    if options.previews:
        found.extend(feed.previews.values())
    return sorted(
        (entry for entry in found if shown < entry[0] < before), key=lambda entry: entry[0]
    )


def _wanted(event: Event, options: StreamOptions) -> bool:
    """The contract's frames by default; a node without takes ends silently there."""
    if options.all_events:
        return True
    if event.type is EventType.NODE_DONE:
        return bool(event.payload["takes"])
    return event.type in _CONTRACT_EVENTS


def make_frame(event: Event, takes: dict[str, Take]) -> Frame:
    """Serialise a durable event."""
    text = json.dumps(event_frame(event, takes))
    return Frame(text, event.type.value, event.seq, terminal=event.type.is_terminal)


def preview_frame(run_id: str, preview: Preview) -> Frame:
    """A binary frame: length of a JSON header (4 bytes, big endian), the header, the picture."""
    header = json.dumps(
        {
            "type": "preview",
            "runId": run_id,
            "nodeId": preview.node_id,
            "step": preview.step,
            "mediaType": preview.media_type,
        }
    ).encode()
    return Frame(None, "preview", binary=struct.pack(">I", len(header)) + header + preview.data)
