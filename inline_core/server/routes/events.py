"""The stream of a run: websocket, and server-sent events for curl."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Path, Query, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from starlette.websockets import WebSocketState

from inline_core.errors import NotFound
from inline_core.server.openapi import replies
from inline_core.server.scope import ServicesOf, services_of
from inline_core.server.streaming import Frame, StreamHub, StreamOptions

router = APIRouter(tags=["events"])
NORMAL_CLOSURE = 1000
GOING_AWAY = 1001
UNKNOWN_RUN = 4404
_SEND_TIMEOUT_S = 30.0
_KEEP_ALIVE_S = 15.0
_MAX_SEQ = 2**63 - 1


@router.websocket("/v1/runs/{run_id}/events")
async def run_events(websocket: WebSocket, run_id: str) -> None:
    """Frames of a run: a snapshot (or what came after `?after=SEQ`), then events, then close.

    `?events=all` adds the durable events the contract does not know (`queued`, `node_started`,
    `node_done` of nodes without takes); `?previews=1` adds binary preview frames.
    Close codes: 1000 after the last frame, 1001 when the server stops, 4404 for an unknown run.
    """
    hub = services_of(websocket).hub
    await websocket.accept()
    options = StreamOptions(
        after=_sequence(websocket.query_params.get("after")),
        all_events=websocket.query_params.get("events") == "all",
        previews=websocket.query_params.get("previews") in {"1", "true"},
    )
    reader = asyncio.create_task(_drain(websocket))
    sender = asyncio.create_task(_send_frames(websocket, hub, run_id, options))
    try:
        await asyncio.wait({reader, sender}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        reader.cancel()
        sender.cancel()
        await asyncio.gather(reader, sender, return_exceptions=True)


async def _drain(websocket: WebSocket) -> None:
    """Client messages mean nothing here; reading them notices when the client leaves."""
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
    except (WebSocketDisconnect, RuntimeError):
        return


async def _send_frames(
    websocket: WebSocket, hub: StreamHub, run_id: str, options: StreamOptions
) -> None:
    code = NORMAL_CLOSURE
    frames = hub.frames(run_id, options)
    try:
        async for frame in frames:
            # A client that does not read for this long is let go; it can resume with `after`.
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                if frame.text is not None:
                    await websocket.send_text(frame.text)
                elif frame.binary is not None:
                    await websocket.send_bytes(frame.binary)
        if hub.closing:
            code = GOING_AWAY
    except NotFound:
        code = UNKNOWN_RUN
    except (WebSocketDisconnect, RuntimeError, TimeoutError):
        return
    finally:
        await frames.aclose()  # type: ignore[attr-defined]
    if websocket.application_state is WebSocketState.CONNECTED:
        await websocket.close(code)


def _sequence(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return min(int(text), _MAX_SEQ)


@router.get(
    "/v1/runs/{run_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
        **replies(404, 422),
    },
)
async def run_events_sse(
    run_id: Annotated[str, Path()],
    services: ServicesOf,
    after: Annotated[int | None, Query(ge=0, le=_MAX_SEQ, description="Resume after it.")] = None,
    events: Annotated[Literal["all"] | None, Query(description="All durable events.")] = None,
    last_event_id: Annotated[str | None, Header(description="As browsers resume.")] = None,
) -> StreamingResponse:
    """The same frames as server-sent events: `curl -N .../v1/runs/RUN/events`."""
    resume = after if after is not None else _sequence(last_event_id)
    options = StreamOptions(after=resume, all_events=events == "all")
    frames = services.hub.frames(run_id, options)
    try:
        first: Frame | None = await anext(frames)
    except StopAsyncIteration:
        first = None
    return StreamingResponse(
        _event_stream(first, frames),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _event_stream(first: Frame | None, frames: AsyncIterator[Frame]) -> AsyncIterator[str]:
    pending: asyncio.Future[Frame] | None = None
    try:
        if first is None:
            return
        yield _sse(first)
        while not first.terminal:
            pending = pending or asyncio.ensure_future(anext(frames))
            done, _ = await asyncio.wait({pending}, timeout=_KEEP_ALIVE_S)
            if not done:
                yield ": still here\n\n"
                continue
            try:
                frame = pending.result()
            except StopAsyncIteration:
                return
            pending = None
            yield _sse(frame)
            if frame.terminal:
                return
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
        await frames.aclose()  # type: ignore[attr-defined]


def _sse(frame: Frame) -> str:
    identity = f"id: {frame.seq}\n" if frame.seq is not None else ""
    return f"{identity}event: {frame.type}\ndata: {frame.text}\n\n"
