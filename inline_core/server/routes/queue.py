"""The queue: pause, resume, order."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from inline_core.server.body import parse_model, read_json
from inline_core.server.models import OrderRequest, QueueReply
from inline_core.server.openapi import json_body, replies
from inline_core.server.scope import ServicesOf
from inline_core.server.services import Services
from inline_core.server.wire import run_head_json
from inline_core.settings import MIB

router = APIRouter(tags=["queue"])


def _queue(services: Services) -> JSONResponse:
    heads = services.queries.unfinished()
    runs = [run_head_json(head, services.board.overview(head.id)) for head in heads]
    return JSONResponse({"paused": services.orchestrator.paused, "runs": runs})


@router.get("/v1/queue", response_model=QueueReply, responses=replies())
def get_queue(services: ServicesOf) -> JSONResponse:
    """Running runs, then the waiting ones in the order they will start."""
    return _queue(services)


@router.post("/v1/queue/pause", response_model=QueueReply, responses=replies(503))
def pause_queue(services: ServicesOf) -> JSONResponse:
    """Start no more runs (also after a restart); running ones go on."""
    services.orchestrator.pause()
    return _queue(services)


@router.post("/v1/queue/resume", response_model=QueueReply, responses=replies(503))
def resume_queue(services: ServicesOf) -> JSONResponse:
    """Start queued runs again."""
    services.orchestrator.resume()
    return _queue(services)


@router.post(
    "/v1/queue/order",
    response_model=QueueReply,
    responses=replies(400, 404, 409, 413, 415, 422, 503),
    openapi_extra=json_body(OrderRequest, {"runIds": ["run_0123456789ab"]}),
)
async def order_queue(request: Request, services: ServicesOf) -> JSONResponse:
    """Move queued runs to the front, in this order."""
    document = await read_json(request, services.settings.max_body_mb * MIB)
    wanted = parse_model(OrderRequest, document)
    run_ids = list(dict.fromkeys(wanted.run_ids))
    await asyncio.wrap_future(services.journal.reorder(run_ids))
    return await asyncio.to_thread(_queue, services)
