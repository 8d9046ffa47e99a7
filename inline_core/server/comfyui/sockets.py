"""The sockets of clients: each is told of its own prompts, from the same streams as `/v1` uses.

A client is known by the id it gives itself.  Where it stands in each of its prompts is kept while
it is away for a moment, so that after a reconnect it goes on there.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from fastapi import WebSocket, WebSocketDisconnect
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocketState

from inline_core.errors import InlineError, NotFound
from inline_core.runs.events import Event, EventType
from inline_core.server.comfyui.history import unfinished
from inline_core.server.comfyui.narration import PICTURE, Message, Narration
from inline_core.server.comfyui.previews import picture_message, preview_messages, wants_previews
from inline_core.server.comfyui.record import TAG, PromptRecord, record_of
from inline_core.server.services import Services
from inline_core.server.streaming import Frame, StreamOptions
from inline_core.settings import MIB

_SEND_TIMEOUT_S: Final = 30.0
_MAX_AWAY: Final = 256
_MAX_PROMPTS: Final = 64
_OLD_MS: Final = 60_000
_REPLACED: Final = 1000
_CLOSED: Final = frozenset({1000, 1001, 1005})
# A connection counts as lost when it does not answer for about this long.
_UNSURE_S: Final = 45.0
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Told:
    """How far a client was told of one run; `waiting` are messages not yet on their way."""

    run_id: str
    seq: int = 0
    ended: bool = False
    waiting: deque[Message] = field(default_factory=deque)
    narration: Narration | None = None
    record: PromptRecord | None = None


@dataclass(slots=True)
class _Client:
    """One client, connected or away for a moment."""

    sid: str
    session: _Session | None = None
    prompts: OrderedDict[str, _Told] = field(default_factory=OrderedDict)


@dataclass(slots=True)
class _Session:
    """One connected socket and the tasks that write to it; `arrival` counts connections.

    `ended` has the runs whose end was sent, and when.
    """

    websocket: WebSocket
    arrival: int
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    queue_news: asyncio.Event = field(default_factory=asyncio.Event)
    followers: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    metadata: bool = False

    def remember(self, run_id: str) -> None:
        """The end of a run was sent just now; those of long ago are forgotten."""
        now = time.monotonic()
        self.ended = {name: at for name, at in self.ended.items() if now - at < _UNSURE_S}
        self.ended[run_id] = now

    async def send(self, kind: str, data: dict[str, Any]) -> None:
        """One text message."""
        await self._send(
            {"type": "websocket.send", "text": json.dumps({"type": kind, "data": data})}
        )

    async def send_bytes(self, data: bytes) -> None:
        """One binary message."""
        await self._send({"type": "websocket.send", "bytes": data})

    async def _send(self, message: dict[str, Any]) -> None:
        # A client that does not read for this long is let go; it can come back and go on.
        async with self.writing, asyncio.timeout(_SEND_TIMEOUT_S):
            await self.websocket.send(message)


class PromptSockets:
    """All clients of this server; used on the event loop, `committed` on any thread."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._clients: OrderedDict[str, _Client] = OrderedDict()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._arrivals = 0

    def committed(self, events: Sequence[Event]) -> None:
        """Events are in the log (the database's writer thread): the queue may have changed."""
        news = any(event.type is EventType.QUEUED or event.type.is_terminal for event in events)
        if news and self._loop is not None and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._queue_changed)
            except RuntimeError:
                # The loop was closed just now: nobody is left to tell.
                return

    def _queue_changed(self) -> None:
        for client in self._clients.values():
            if client.session is not None:
                client.session.queue_news.set()

    def announce(self, client_id: str | None, run_id: str) -> None:
        """A prompt of this client was stored; it is told of it, now or when it connects."""
        if client_id is None:
            return
        client = self._client(client_id)
        if run_id not in client.prompts:
            client.prompts[run_id] = _Told(run_id)
        while len(client.prompts) > _MAX_PROMPTS and client.session is None:
            client.prompts.popitem(last=False)
        if client.session is not None:
            self._follow(client, client.session, run_id)

    async def serve(self, websocket: WebSocket) -> None:
        """One connection, until either side ends it."""
        self._loop = asyncio.get_running_loop()
        sid = websocket.query_params.get("clientId") or uuid.uuid4().hex
        await websocket.accept()
        self._arrivals += 1
        arrival = self._arrivals
        client, session = self._client(sid), _Session(websocket, arrival)
        status: asyncio.Task[None] | None = None
        lost = False
        try:
            for run_id in await run_in_threadpool(self._unfinished_of, sid):
                client.prompts.setdefault(run_id, _Told(run_id))
            told = await self._status(client)
            await session.send("status", {**told, "sid": sid})
            # Only now: the first message is the status.
            before = client.session
            if before is not None and before.arrival > arrival:
                # A newer socket of this client was quicker.
                await _close(session)
                return
            if before is not None:
                _retell(client, before)
            client.session = session
            self._clients[sid] = client
            for run_id in list(client.prompts):
                self._follow(client, session, run_id)
            if before is not None:
                await _close(before)
            # The queue may have changed since it was told.
            session.queue_news.set()
            status = asyncio.create_task(self._tell_queue(client, session, told))
            lost = await self._listen(session)
        except (WebSocketDisconnect, RuntimeError, TimeoutError):
            return
        finally:
            if client.session is session:
                client.session = None
                if lost:
                    _retell(client, session)
            tasks = [*session.followers.values(), *([status] if status is not None else ())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _client(self, sid: str) -> _Client:
        client = self._clients.get(sid)
        if client is None:
            client = self._clients[sid] = _Client(sid)
            away = [name for name, known in self._clients.items() if known.session is None]
            for name in away[: max(0, len(away) - _MAX_AWAY)]:
                if name != sid:
                    del self._clients[name]
        self._clients.move_to_end(sid)
        return client

    # ---- the queue --------------------------------------------------------------------------

    async def _status(self, client: _Client) -> dict[str, Any]:
        """Unfinished prompts; one of the client's own counts until its end was told."""
        waiting = await run_in_threadpool(self._services.queries.unfinished_ids, TAG)
        remaining = len({*waiting, *client.prompts})
        return {"status": {"exec_info": {"queue_remaining": remaining}}}

    async def _tell_queue(self, client: _Client, session: _Session, told: dict[str, Any]) -> None:
        try:
            while True:
                await session.queue_news.wait()
                session.queue_news.clear()
                try:
                    status = await self._status(client)
                except InlineError as error:
                    _log.warning("the queue could not be told", why=error.message)
                    continue
                if status != told:
                    told = status
                    await session.send("status", status)
        except (WebSocketDisconnect, RuntimeError, TimeoutError):
            return

    # ---- listening --------------------------------------------------------------------------

    async def _listen(self, session: _Session) -> bool:
        """Until the socket ends; True if the connection was lost rather than closed."""
        while True:
            message = await session.websocket.receive()
            if message["type"] == "websocket.disconnect":
                # Where no closing frame came, uvicorn has a code too, but no reason.
                return message.get("code") not in _CLOSED or "reason" not in message
            document = _decoded(message.get("text"))
            if document.get("type") == "feature_flags":
                flags = document.get("data")
                wanted = isinstance(flags, dict) and flags.get("supports_preview_metadata")
                session.metadata = wanted is True
                await session.send("feature_flags", features(self._services))

    # ---- telling of prompts -----------------------------------------------------------------

    def _unfinished_of(self, sid: str) -> list[str]:
        return [head.id for head, record in unfinished(self._services) if record.client_id == sid]

    def _follow(self, client: _Client, session: _Session, run_id: str) -> None:
        if run_id not in session.followers:
            task = asyncio.get_running_loop().create_task(self._tell(client, session, run_id))
            session.followers[run_id] = task

    async def _tell(self, client: _Client, session: _Session, run_id: str) -> None:
        """Tell a client of one run until its end."""
        told = client.prompts[run_id]
        try:
            if await self._ready(told):
                while not await self._frames(session, told):
                    # The client wants previews now, or none any more.
                    pass
                session.remember(run_id)
            _forget(client, told)
        except NotFound:
            _forget(client, told)
        except (WebSocketDisconnect, RuntimeError, TimeoutError):
            # The client left; it goes on from `told` when it comes back.
            return
        finally:
            if session.followers.get(run_id) is asyncio.current_task():
                del session.followers[run_id]
                session.queue_news.set()

    async def _ready(self, told: _Told) -> bool:
        """Read what the run is; False for one that is over for so long that nobody waits."""
        view = await run_in_threadpool(self._services.queries.run, told.run_id)
        head = view.head
        record = record_of(head)
        finished = head.finished_at_ms
        if record is None or (finished is not None and finished < time.time() * 1000 - _OLD_MS):
            return False
        if told.narration is None:
            told.record = record
            told.narration = Narration(record, view.body.order)
        return True

    async def _frames(self, session: _Session, told: _Told) -> bool:
        """Tell what comes; True at the end of the run, False when to begin anew with previews."""
        if told.narration is None or told.record is None:
            return True
        previews = wants_previews(told.record, metadata=session.metadata)
        options = StreamOptions(after=told.seq, all_events=True, previews=previews)
        await self._send_waiting(session, told)
        if told.ended:
            return True
        frames = self._services.hub.frames(told.run_id, options)
        try:
            async for frame in frames:
                await self._tell_frame(session, told, frame)
                if told.ended:
                    return True
                if wants_previews(told.record, metadata=session.metadata) != previews:
                    return False
        finally:
            await frames.aclose()  # type: ignore[attr-defined]
        # The stream ended without an end of the run: the server stops.
        raise WebSocketDisconnect

    async def _tell_frame(self, session: _Session, told: _Told, frame: Frame) -> None:
        if told.narration is None:
            return
        if frame.binary is not None:
            pictures = await run_in_threadpool(
                preview_messages, frame.binary, told.narration, metadata=session.metadata
            )
            for picture in pictures:
                await session.send_bytes(picture)
        elif frame.text is not None:
            told.waiting.extend(told.narration.tell(json.loads(frame.text)))
            told.ended = frame.terminal
            if frame.seq is not None:
                told.seq = frame.seq
            await self._send_waiting(session, told)

    async def _send_waiting(self, session: _Session, told: _Told) -> None:
        """Send what is to be sent; what a lost connection leaves comes first on the next one."""
        while told.waiting:
            kind, data = told.waiting[0]
            if kind == PICTURE:
                await self._send_picture(session, data)
            else:
                await session.send(kind, data)
            told.waiting.popleft()

    async def _send_picture(self, session: _Session, take: dict[str, Any]) -> None:
        sha256 = take["hash"].removeprefix("sha256-")
        path = self._services.takes.path(sha256, take["uri"].rpartition(".")[2])
        try:
            data = await run_in_threadpool(path.read_bytes)
        except OSError:
            # It was deleted since.
            return
        await session.send_bytes(picture_message(data))


def features(services: Services) -> dict[str, Any]:
    """What this server can do beyond the basics."""
    limit = services.settings.max_upload_mb * MIB
    return {"supports_preview_metadata": True, "max_upload_size": limit}


def _decoded(text: str | None) -> dict[str, Any]:
    """A client's message; nothing if it is not one of those that mean something."""
    try:
        document = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _forget(client: _Client, told: _Told) -> None:
    """A client needs no more of a run, unless it has to be told anew."""
    if client.prompts.get(told.run_id) is told:
        del client.prompts[told.run_id]


def _retell(client: _Client, session: _Session) -> None:
    """What was sent last on a lost connection may not have arrived: tell those runs anew."""
    now = time.monotonic()
    recent = [run_id for run_id, at in session.ended.items() if now - at < _UNSURE_S]
    for run_id in (*recent, *session.followers):
        client.prompts[run_id] = _Told(run_id)


async def _close(session: _Session) -> None:
    """The same client came again: its older socket ends."""
    for task in session.followers.values():
        task.cancel()
    if session.websocket.application_state is WebSocketState.CONNECTED:
        try:
            await session.websocket.close(_REPLACED)
        except RuntimeError:
            return
