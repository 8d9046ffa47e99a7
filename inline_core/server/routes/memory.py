"""Memory: what a graph will take, and giving back what nobody uses."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from inline_core.engine.estimate import job_json, plan_json
from inline_core.engine.submission import effective_params
from inline_core.errors import InlineError
from inline_core.server.body import read_json
from inline_core.server.errors import error_json
from inline_core.server.models import GraphModel, Wire
from inline_core.server.openapi import json_body, replies
from inline_core.server.scope import ServicesOf
from inline_core.server.services import Services
from inline_core.server.submit import require_object, wholly_checked
from inline_core.settings import MIB

router = APIRouter(tags=["memory"])
_EXAMPLE = {"graph": {"schemaVersion": 1, "nodes": [], "edges": []}}


class EstimateRequest(Wire):
    """A graph, and the node to run it for (absent: all of it)."""

    graph: GraphModel
    target: str | None = None


class FitEstimate(Wire):
    """Whether something fits, in megabytes (MiB) of device memory."""

    plan: str = Field(description="`resident`, `int8`, `offload` or `wont-fit`.")
    fits: bool
    required_vram_mb: int
    total_vram_mb: int | None
    free_vram_mb: int | None
    free_ram_mb: int | None
    warning: str | None


class EstimateReply(Wire):
    """The hardest job of the graph, every job by node, and what could not be estimated."""

    estimate: FitEstimate | None
    nodes: dict[str, list[dict[str, Any]]]
    problems: list[dict[str, Any]]


class FreeReply(Wire):
    """Bytes of loaded models and of the whole process, before and after."""

    bytes_before: int
    bytes_after: int
    resident_before: int
    resident_after: int


@router.post(
    "/v1/estimate",
    response_model=EstimateReply,
    responses=replies(400, 413, 415, 422),
    openapi_extra=json_body(EstimateRequest, _EXAMPLE),
)
async def estimate(request: Request, services: ServicesOf) -> JSONResponse:
    """What a graph will need and where everything would go; nothing is loaded or run."""
    document = await read_json(request, services.settings.max_body_mb * MIB)
    return JSONResponse(await run_in_threadpool(_estimate, services, document))


def _estimate(services: Services, document: Any) -> dict[str, Any]:
    require_object(document)
    checked = wholly_checked(services, document)
    params, _ = effective_params(checked, services.specs, services.catalog)
    found = services.estimator.graph(checked, services.specs, params)
    worst = found.worst()
    return {
        "estimate": plan_json(worst, services.render.policy.memory()) if worst else None,
        "nodes": {node: [job_json(job) for job in jobs] for node, jobs in found.jobs.items()},
        "problems": [_problem(error) for error in found.problems.values()],
    }


def _problem(error: InlineError) -> dict[str, Any]:
    body: dict[str, Any] = error_json(error)["error"]
    return body


@router.post("/v1/memory/free", response_model=FreeReply, responses=replies(503))
def free_memory(services: ServicesOf) -> JSONResponse:
    """Drop every model and encoded prompt that no run is using right now."""
    return JSONResponse(services.render.free())
