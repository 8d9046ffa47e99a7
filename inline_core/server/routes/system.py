"""Health, node types, model files, metrics."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse, Response

from inline_core.errors import NotFound
from inline_core.graph.document import SCHEMA_VERSION
from inline_core.server.conditional import not_modified
from inline_core.server.metrics import render_metrics
from inline_core.server.models import DescriptorModel, HealthReply, ModelFileList, ModelsReply
from inline_core.server.openapi import replies
from inline_core.server.scope import ServicesOf
from inline_core.server.services import Services, disk_free
from inline_core.version import __version__

router = APIRouter(tags=["system"])
_LAST_ERRORS = 5


@router.get("/v1/health", response_model=HealthReply, responses=replies())
def health(services: ServicesOf) -> JSONResponse:
    """How the server does: device, queue, models, disk, last errors; the device is not asked."""
    return JSONResponse(health_body(services), headers={"Cache-Control": "no-store"})


def health_body(services: Services) -> dict[str, Any]:
    """The contract's keys first, then what is ours."""
    counts = services.queries.counts()
    recovered = services.orchestrator.recovered
    return {
        "ok": True,
        "apiVersion": "v1",
        "schemaVersions": {"min": SCHEMA_VERSION, "max": SCHEMA_VERSION},
        "registryVersion": services.descriptors.current().version,
        "device": services.render.policy.summary(),
        "version": __version__,
        "uptimeS": round(time.time() - services.started_at, 1),
        "queue": {
            "paused": services.orchestrator.paused,
            "queued": counts["queued"],
            "running": counts["running"],
            "limit": services.settings.max_queue,
        },
        "runs": counts,
        "models": services.render.stats(),
        "disk": disk_free(services.settings.data_dir),
        "warnings": list(services.catalog.warnings()),
        "recovered": {
            "requeued": len(recovered.requeued) if recovered else 0,
            "interrupted": len(recovered.interrupted) if recovered else 0,
        },
        "lastErrors": [
            {
                "runId": head.id,
                "code": head.error.code,
                "nodeId": head.error.node_id,
                "message": head.error.message,
                "at": head.finished_at_ms,
            }
            for head in services.queries.last_errors(_LAST_ERRORS)
            if head.error is not None
        ],
    }


@router.get(
    "/v1/models",
    response_model=ModelsReply,
    responses={304: {"description": "Nothing changed."}, **replies()},
)
def list_models(request: Request, services: ServicesOf) -> Response:
    """Every node type, with the model files that fit each picker; ETag moves when they change."""
    registry = services.descriptors.current()
    etag = f'"{registry.version}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if not_modified(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    return Response(registry.body, media_type="application/json", headers=headers)


@router.get("/v1/models/{node_type:path}", response_model=DescriptorModel, responses=replies(404))
def get_model(node_type: Annotated[str, Path()], services: ServicesOf) -> JSONResponse:
    """One node type."""
    found = services.descriptors.current().models.get(node_type)
    if found is None:
        message = f"Unknown node type {node_type!r}."
        raise NotFound(message)
    return JSONResponse(found)


@router.get("/v1/model-files", response_model=ModelFileList, responses=replies())
def list_model_files(services: ServicesOf) -> JSONResponse:
    """Every file of the models folders: what it is, and why it is not usable where it is not."""
    files = [_model_file(file) for file in services.catalog.all_files()]
    body = {
        "files": files,
        "warnings": list(services.catalog.warnings()),
        "registryVersion": services.descriptors.current().version,
    }
    return JSONResponse(body)


def _model_file(file: Any) -> dict[str, Any]:
    identity = file.identity
    body: dict[str, Any] = {
        "category": file.category,
        "name": file.name,
        "source": file.source,
        "status": file.status,
        "reason": file.reason,
        "bytes": file.size_bytes,
    }
    if identity is not None:
        body |= {
            "role": identity.role.value,
            "family": identity.family,
            "variant": identity.variant,
            "title": identity.title,
            "dtype": identity.dtype,
            "quantization": identity.quantization,
            "parameters": identity.parameter_count,
            "label": identity.in_words(),
            "layout": identity.layout,
            "className": identity.class_name,
            "geometry": dict(identity.geometry),
            "problems": list(identity.problems),
        }
    return body


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **replies()},
)
def metrics(services: ServicesOf) -> Response:
    """Counters and gauges in Prometheus text."""
    body, media_type = render_metrics(services)
    return Response(body, media_type=media_type)
