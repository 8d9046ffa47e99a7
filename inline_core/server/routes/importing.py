"""Foreign workflows: ComfyUI's, as JSON or inside of a picture, a video or a sound."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from inline_core.errors import InvalidRequest
from inline_core.importers.comfyui.exporting import export_prompt
from inline_core.server.body import read_bytes, read_json
from inline_core.server.importing import imported_workflow
from inline_core.server.models import (
    EXAMPLE_GRAPH,
    ExportRequest,
    WorkflowExportReply,
    WorkflowImportReply,
)
from inline_core.server.multipart import file_part
from inline_core.server.openapi import json_body, replies
from inline_core.server.scope import ServicesOf
from inline_core.server.services import Services
from inline_core.server.submit import require_object
from inline_core.settings import MIB

router = APIRouter(tags=["recipes"])
_FORM = "multipart/form-data"
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": (
            "A workflow or an API prompt as JSON, or a PNG, WebP, APNG, JPEG, AVIF, video, sound "
            "or GLB that ComfyUI wrote: raw, or field `file` of a form."
        ),
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            _FORM: {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            },
        },
    }
}


@router.post(
    "/v1/import/comfyui",
    response_model=WorkflowImportReply,
    responses=replies(400, 413, 415, 422),
    openapi_extra=_BODY,
)
async def import_comfyui(
    request: Request,
    services: ServicesOf,
    seed: Annotated[int, Query(description="Chooses among `{a|b}` of dynamic prompts.")] = 0,
) -> JSONResponse:
    """Turn a ComfyUI workflow into a graph for `/v1/runs`; nothing is stored and nothing runs.

    Post the reply's `graph` and `targets` to `/v1/runs`.  `report` says for each node what became
    of it, which model files are missing and where the workflow says they can be had, and what would
    keep the graph from running now.
    """
    content_type = request.headers.get("content-type", "")
    data = await read_bytes(request, services.settings.max_upload_mb * MIB)
    if not data:
        message = "The body is empty: post a workflow as JSON, or a file that holds one."
        raise InvalidRequest(message)
    form = content_type if content_type.startswith(_FORM) else None
    return JSONResponse(await asyncio.to_thread(_read, services, data, form, seed))


@router.post(
    "/v1/export/comfyui",
    response_model=WorkflowExportReply,
    responses=replies(400, 413, 415, 422),
    openapi_extra=json_body(ExportRequest, {"graph": EXAMPLE_GRAPH}),
)
async def export_comfyui(request: Request, services: ServicesOf) -> JSONResponse:
    """Write an imported graph back as a ComfyUI API prompt, with its params as they are now."""
    document = await read_json(request, services.settings.max_body_mb * MIB)
    require_object(document)
    graph = document.get("graph")
    if not isinstance(graph, dict):
        message = "'graph' must be a graph that /v1/import/comfyui gave."
        raise InvalidRequest(message)
    export = export_prompt(graph)
    return JSONResponse({"prompt": export.prompt, "leftOut": list(export.left_out)})


def _read(services: Services, data: bytes, form: str | None, seed: int) -> dict[str, Any]:
    if form is not None:
        start, end = file_part(data, form, "file")
        data = data[start:end]
    return imported_workflow(services, data, seed=seed)
