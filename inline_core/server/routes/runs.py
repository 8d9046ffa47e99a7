"""Runs: submit, look, cancel, retry, delete, sweep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse

from inline_core.runs.journal import Submitted
from inline_core.runs.queries import RunFilter
from inline_core.runs.records import NewRun, new_run_id
from inline_core.runs.states import RunStatus
from inline_core.server.body import parse_model, read_json
from inline_core.server.errors import problem_json
from inline_core.server.models import (
    EXAMPLE_GRAPH,
    CancelReply,
    PriorityRequest,
    RunHeadModel,
    RunList,
    RunModel,
    RunRequest,
    SubmitReply,
    SweepReply,
    SweepRequest,
    ValidateReply,
    ValidateRequest,
)
from inline_core.server.openapi import json_body, replies
from inline_core.server.paging import DEFAULT_PAGE, MAX_PAGE, decode_cursor, encode_cursor
from inline_core.server.scope import ServicesOf
from inline_core.server.services import Services
from inline_core.server.streaming import StreamOptions
from inline_core.server.submit import (
    checked_graph,
    flag,
    require_object,
    submit,
    sweep_runs,
)
from inline_core.server.wire import run_head_json, run_json
from inline_core.settings import MIB

router = APIRouter(tags=["runs"])
MAX_WAIT_S = 3600.0
RunId = Annotated[str, Path(description="`run_` and 12 hex digits.")]
_NO_STORE = {"Cache-Control": "no-store"}


@router.post(
    "/v1/runs",
    status_code=201,
    response_model=SubmitReply,
    responses={
        200: {"model": SubmitReply, "description": "The run of this clientRunId, known already."},
        **replies(400, 409, 413, 415, 422, 429, 503, 507),
    },
    openapi_extra=json_body(
        RunRequest, {"graph": EXAMPLE_GRAPH, "target": "picture", "clientRunId": "my-first-run"}
    ),
)
async def submit_run(
    request: Request,
    services: ServicesOf,
    wait: Annotated[
        float, Query(ge=0, le=MAX_WAIT_S, description="Seconds to wait for the end of the run.")
    ] = 0,
) -> JSONResponse:
    """Check a graph and store it as a durable run; once this answers 201 the run is safe."""
    document = await read_json(request, services.settings.max_body_mb * MIB)
    submitted, warnings = await submit(services, document)
    body: dict[str, Any] = {"runId": submitted.run_id, "status": submitted.status.value}
    if wait > 0:
        await wait_for_end(services, submitted.run_id, wait)
        body = await asyncio.to_thread(_whole_run, services, submitted.run_id)
    elif warnings:
        body["warnings"] = warnings
    return JSONResponse(body, 200 if submitted.replayed else 201)


async def wait_for_end(services: Services, run_id: str, timeout_s: float) -> None:
    """Wait until a run is final, the time is over, or the server stops."""
    frames = services.hub.frames(run_id, StreamOptions())
    try:
        async with asyncio.timeout(timeout_s):
            await _exhaust(frames)
    except TimeoutError:
        return


async def _exhaust(frames: AsyncIterator[Any]) -> None:
    async for _ in frames:
        pass


def _whole_run(services: Services, run_id: str) -> dict[str, Any]:
    return run_json(services.queries.run(run_id), services.board.slots(run_id))


@router.post(
    "/v1/runs/sweep",
    status_code=201,
    response_model=SweepReply,
    responses=replies(400, 409, 413, 415, 422, 429, 503, 507),
    openapi_extra=json_body(
        SweepRequest,
        {
            "graph": EXAMPLE_GRAPH,
            "target": "picture",
            "tag": "steps",
            "table": [{"picture": {"steps": 4}}, {"picture": {"steps": 8}}],
        },
    ),
)
async def submit_sweep(request: Request, services: ServicesOf) -> JSONResponse:
    """Store one run for each row of a table of param values, all or none, under one tag."""
    document = await read_json(request, services.settings.max_body_mb * MIB)
    tag, new_runs = await asyncio.to_thread(sweep_runs, services, document)
    results: list[Submitted] = await asyncio.wrap_future(services.journal.submit(new_runs))
    runs = [{"runId": result.run_id, "status": result.status.value} for result in results]
    return JSONResponse({"tag": tag, "runs": runs}, 201)


@router.post(
    "/v1/graphs/validate",
    response_model=ValidateReply,
    responses=replies(400, 413, 415, 422),
    openapi_extra=json_body(ValidateRequest, {"graph": EXAMPLE_GRAPH, "target": "picture"}),
)
async def validate_graph(request: Request, services: ServicesOf) -> JSONResponse:
    """Check a graph without running it; 422 lists every problem."""
    document = await read_json(request, services.settings.max_body_mb * MIB)
    require_object(document)
    strict = flag(document, "strict")
    checked = await asyncio.to_thread(checked_graph, services, document, strict=strict)
    warnings = [problem_json(problem) for problem in checked.warnings]
    return JSONResponse({"ok": True, "order": list(checked.order), "warnings": warnings})


@router.get("/v1/runs", response_model=RunList, responses=replies(422))
def list_runs(
    services: ServicesOf,
    status: Annotated[
        list[RunStatus] | None, Query(description="Only these statuses; newest first.")
    ] = None,
    tag: Annotated[str | None, Query(description="Only runs with this tag.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE,
    cursor: Annotated[str | None, Query(description="`nextCursor` of the page before.")] = None,
    all_runs: Annotated[
        bool, Query(alias="all", description="The whole history, newest first, in pages.")
    ] = False,
) -> JSONResponse:
    """List runs: without a filter the unfinished ones, in the order they start."""
    if not (status or tag is not None or cursor or all_runs):
        heads = services.queries.unfinished()
        return JSONResponse({"runs": _heads(services, heads)}, headers=_NO_STORE)
    wanted = RunFilter(tuple(status or ()), tag)
    found = services.queries.page(wanted, limit=limit, before=decode_cursor(cursor))
    page = found[:limit]
    more = len(found) > limit
    body = {
        "runs": _heads(services, page),
        "nextCursor": encode_cursor(page[-1].created_at_ms, page[-1].id) if more else None,
    }
    return JSONResponse(body, headers=_NO_STORE)


def _heads(services: Services, heads: list[Any]) -> list[dict[str, Any]]:
    return [run_head_json(head, services.board.overview(head.id)) for head in heads]


@router.get("/v1/runs/{run_id}", response_model=RunModel, responses=replies(404))
def get_run(run_id: RunId, services: ServicesOf) -> JSONResponse:
    """Everything about a run: queue position, node states, takes, resolved seeds, error."""
    return JSONResponse(_whole_run(services, run_id), headers=_NO_STORE)


@router.delete("/v1/runs/{run_id}", response_model=CancelReply, responses=replies(404, 409, 503))
def cancel_run(run_id: RunId, services: ServicesOf) -> JSONResponse:
    """Cancel a run: a queued one at once, a running one at its next step.

    A finished run answers 409 with its status.
    """
    services.orchestrator.cancel(run_id)
    return JSONResponse({"runId": run_id, "status": RunStatus.CANCELLED.value})


@router.delete("/v1/runs/{run_id}/record", status_code=204, responses=replies(404, 409, 503))
def delete_run(run_id: RunId, services: ServicesOf) -> None:
    """Delete a finished run and the takes that no other run uses; this frees their bytes."""
    services.library.delete_run(run_id).result()


@router.post(
    "/v1/runs/{run_id}/retry",
    status_code=201,
    response_model=SubmitReply,
    responses=replies(404, 409, 429, 503, 507),
)
def retry_run(run_id: RunId, services: ServicesOf) -> JSONResponse:
    """Run the same again as a new run: same graph, same seeds; finished nodes are reused."""
    view = services.queries.run(run_id)
    new = NewRun(
        graph=view.body.graph,
        graph_hash=services.queries.graph_hash(run_id),
        target=view.head.target,
        targets=view.body.targets,
        order=view.body.order,
        params=view.body.params,
        seeds=view.body.seeds,
        meta=view.head.meta,
        tags=view.head.tags,
        priority=view.head.priority,
        retry_of=run_id,
    )
    submitted = services.journal.submit([replace(new, id=new_run_id())]).result()[0]
    body = {"runId": submitted.run_id, "status": submitted.status.value}
    return JSONResponse(body, 201)


@router.patch(
    "/v1/runs/{run_id}",
    response_model=RunHeadModel,
    responses=replies(400, 404, 409, 413, 415, 422, 503),
    openapi_extra=json_body(PriorityRequest, {"priority": 10}),
)
async def change_run(run_id: RunId, request: Request, services: ServicesOf) -> JSONResponse:
    """Change the priority of a queued run; higher runs first."""
    document = await read_json(request, services.settings.max_body_mb * MIB)
    wanted = parse_model(PriorityRequest, document)
    await asyncio.wrap_future(services.journal.set_priority(run_id, wanted.priority))
    view = await asyncio.to_thread(services.queries.run, run_id)
    return JSONResponse(run_head_json(view.head, services.board.overview(run_id)))
