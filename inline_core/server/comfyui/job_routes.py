"""Jobs: the newer view of the same prompts."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from inline_core.errors import Conflict
from inline_core.runs.records import RunHead
from inline_core.runs.states import RunStatus
from inline_core.server.comfyui import history as stored
from inline_core.server.comfyui.faults import ComfyRoute, Refused
from inline_core.server.comfyui.outputs import outputs_of
from inline_core.server.comfyui.record import PromptRecord, record_of
from inline_core.server.comfyui.scope import ApiOf
from inline_core.server.services import Services
from inline_core.server.wire import take_json

router = APIRouter(route_class=ComfyRoute, include_in_schema=False)
_STATUSES: Final = {
    RunStatus.QUEUED: "pending",
    RunStatus.RUNNING: "in_progress",
    RunStatus.DONE: "completed",
    RunStatus.ERROR: "failed",
    RunStatus.CANCELLED: "cancelled",
}
_MAX_LIMIT: Final = 1000


@router.get("/jobs")
def list_jobs(
    api: ApiOf,
    status: Annotated[str | None, Query(description="Statuses, comma separated.")] = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_LIMIT)] = 100,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> JSONResponse:
    """Prompts of every status, newest first."""
    wanted = {name.strip() for name in status.split(",")} if status else set(_STATUSES.values())
    heads = [head for head, _ in stored.unfinished(api.services)][::-1]
    heads += stored.finished_heads(api.services)[::-1]
    rows = [
        _job(head, record)
        for head in heads
        if _STATUSES[head.status] in wanted and (record := record_of(head)) is not None
    ]
    page = rows[offset : offset + limit]
    pagination = {
        "offset": offset,
        "limit": limit,
        "total": len(rows),
        "has_more": offset + limit < len(rows),
    }
    return JSONResponse({"jobs": page, "pagination": pagination})


@router.get("/jobs/{job_id}")
def get_job(job_id: Annotated[str, Path()], api: ApiOf) -> JSONResponse:
    """One prompt with its outputs."""
    view, record = _found(api.services, job_id)
    takes = [take_json(take) for take in view.takes]
    outputs = outputs_of(record, takes, stored.texts_of(api.services, view.head.id))
    files = [
        file for entry in outputs.values() for file in entry.get("images", entry.get("audio", ()))
    ]
    body = {
        **_job(view.head, record),
        "outputs": outputs,
        "outputs_count": len(files),
        "preview_output": files[0] if files else None,
        "workflow": {"prompt": dict(record.prompt), "extra_data": dict(record.extra_data)},
    }
    if view.head.error is not None:
        body["execution_error"] = stored.failed(
            record, view.head.error.node_id, (), view.head.error.code, view.head.error.message
        )
    return JSONResponse(body)


@router.post("/jobs/{job_id}/cancel")
async def cancel_job(job_id: Annotated[str, Path()], request: Request, api: ApiOf) -> JSONResponse:
    """Stop a prompt, running or waiting; one that is finished stays as it is."""
    del request
    view, _ = await run_in_threadpool(_found, api.services, job_id)
    try:
        await run_in_threadpool(api.services.orchestrator.cancel, view.head.id)
    except Conflict:
        return JSONResponse({"cancelled": False})
    return JSONResponse({"cancelled": True})


def _found(services: Services, job_id: str) -> tuple[Any, PromptRecord]:
    found = stored.run_of(services, job_id)
    if found is None:
        message = f"No job {job_id!r}."
        raise Refused("not_found", message, status=404)
    return found


def _job(head: RunHead, record: PromptRecord) -> dict[str, Any]:
    return {
        "id": record.prompt_id,
        "status": _STATUSES[head.status],
        "priority": record.number,
        "create_time": head.created_at_ms,
        "execution_start_time": head.started_at_ms,
        "execution_end_time": head.finished_at_ms,
        "outputs_count": 0,
        "preview_output": None,
        "workflow_id": None,
    }
