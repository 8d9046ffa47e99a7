"""Prompts: queue, look, cancel, history."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from inline_core.errors import Conflict, NotFound
from inline_core.runs.states import RunStatus
from inline_core.server.comfyui import history as stored
from inline_core.server.comfyui.faults import ComfyRoute
from inline_core.server.comfyui.prompts import submit_prompt
from inline_core.server.comfyui.record import TAG
from inline_core.server.comfyui.scope import ApiOf, read_document, read_object
from inline_core.server.services import Services

router = APIRouter(route_class=ComfyRoute, include_in_schema=False)
_NO_STORE: Final = {"Cache-Control": "no-store"}
_MAX_OFFSET: Final = 2**31


@router.post("/prompt")
async def queue_prompt(request: Request, api: ApiOf) -> JSONResponse:
    """Check a prompt and store it as a durable run; the same `prompt_id` again is the same run."""
    document = await read_document(request, api.services)
    accepted = await submit_prompt(api.services, api.numbers, document)
    api.sockets.announce(accepted.record.client_id, accepted.run_id)
    return JSONResponse(accepted.body())


@router.get("/prompt")
def queue_length(api: ApiOf) -> JSONResponse:
    """How many prompts are not finished."""
    remaining = len(api.services.queries.unfinished_ids(TAG))
    return JSONResponse({"exec_info": {"queue_remaining": remaining}}, headers=_NO_STORE)


@router.get("/history")
def get_history(
    api: ApiOf,
    max_items: Annotated[int | None, Query(ge=-1, le=_MAX_OFFSET)] = None,
    offset: Annotated[int | None, Query(ge=-1, le=_MAX_OFFSET)] = None,
) -> JSONResponse:
    """Finished prompts, oldest first."""
    limit = None if max_items is None or max_items < 0 else max_items
    return JSONResponse(stored.history(api.services, limit, offset), headers=_NO_STORE)


@router.get("/history/{prompt_id}")
def get_prompt_history(prompt_id: Annotated[str, Path()], api: ApiOf) -> JSONResponse:
    """One finished prompt; `{}` before that."""
    return JSONResponse(stored.entry_of(api.services, prompt_id), headers=_NO_STORE)


@router.post("/history")
async def change_history(request: Request, api: ApiOf) -> Response:
    """Take prompts out of the history; their runs and pictures stay."""
    document = await read_object(request, api.services)
    if document.get("clear"):
        await asyncio.wrap_future(api.services.library.untag(TAG))
    run_ids = await run_in_threadpool(_run_ids, api.services, document.get("delete"))
    if run_ids:
        await asyncio.wrap_future(api.services.library.untag(TAG, run_ids))
    return Response()


def _run_ids(services: Services, prompt_ids: Any) -> list[str]:
    if not isinstance(prompt_ids, list):
        return []
    found = (stored.run_of(services, str(prompt_id)) for prompt_id in prompt_ids)
    return [known[0].head.id for known in found if known is not None]


@router.get("/queue")
def get_queue(api: ApiOf) -> JSONResponse:
    """Running and waiting prompts."""
    return JSONResponse(stored.queue(api.services), headers=_NO_STORE)


@router.post("/queue")
async def change_queue(request: Request, api: ApiOf) -> Response:
    """Take waiting prompts out of the queue."""
    document = await read_object(request, api.services)
    delete = document.get("delete")
    wanted = {str(prompt_id) for prompt_id in delete} if isinstance(delete, list) else set()
    everything = bool(document.get("clear"))
    await run_in_threadpool(_drop_waiting, api.services, wanted, everything=everything)
    return Response()


def _drop_waiting(services: Services, wanted: set[str], *, everything: bool) -> None:
    for head, record in list(stored.unfinished(services)):
        if head.status is RunStatus.QUEUED and (everything or record.prompt_id in wanted):
            # One that was started in between goes on: only waiting ones are dropped.
            services.journal.cancel_if_queued(head.id).result()


@router.post("/interrupt")
async def interrupt(request: Request, api: ApiOf) -> Response:
    """Stop the running prompts, or the one of `prompt_id` if it is running."""
    document = await read_object(request, api.services)
    wanted = document.get("prompt_id")
    await run_in_threadpool(_stop_running, api.services, wanted)
    return Response()


def _stop_running(services: Services, wanted: Any) -> None:
    for head, record in list(stored.unfinished(services)):
        if head.status is RunStatus.RUNNING and wanted in (None, "", record.prompt_id):
            try:
                services.orchestrator.cancel(head.id)
            except (Conflict, NotFound):
                # It ended in between, which is what was wanted.
                continue
