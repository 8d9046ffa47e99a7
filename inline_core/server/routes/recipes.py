"""Recipes: how a take was made, and graphs out of files."""

from __future__ import annotations

import asyncio
import mmap
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse

from inline_core.errors import InvalidRequest, UnsupportedMediaType
from inline_core.server.models import ImportReply, RecipeModel
from inline_core.server.multipart import file_part
from inline_core.server.openapi import replies
from inline_core.server.recipes import imported, take_recipe
from inline_core.server.routes.takes import receive
from inline_core.server.scope import ServicesOf
from inline_core.server.services import Services
from inline_core.settings import MIB

router = APIRouter(tags=["recipes"])
_FORM = "multipart/form-data"
_JSON = "application/json"
_MEDIA = ("image/png", "image/webp", "image/jpeg", "video/mp4", "audio/wav", "audio/flac")
_RAW = (*_MEDIA, "application/octet-stream", _JSON)
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A take made here, or a graph as JSON: raw, or field `file` of a form.",
        "content": {
            _FORM: {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            },
            **{kind: {"schema": {"type": "string", "format": "binary"}} for kind in _RAW[:-1]},
            _JSON: {"schema": {"type": "object"}},
        },
    }
}


@router.get("/v1/takes/{take_id}/graph", response_model=RecipeModel, responses=replies(404, 410))
def get_take_graph(take_id: Annotated[str, Path()], services: ServicesOf) -> JSONResponse:
    """A graph that makes this very take again, ready to be posted to `/v1/runs`.

    All params are settled and random seeds resolved.  It is read from the database, so it is there
    without INLINE_METADATA, and after the take's bytes were deleted.
    """
    return JSONResponse(take_recipe(services, take_id))


@router.post(
    "/v1/import",
    response_model=ImportReply,
    responses=replies(400, 413, 415, 422, 507),
    openapi_extra=_BODY,
)
async def import_file(request: Request, services: ServicesOf) -> JSONResponse:
    """Get the graph out of a file made here (png, mp4, wav, flac), or JSON; nothing is stored."""
    content_type = request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if kind != _FORM and kind not in _RAW:
        message = (
            f"Content-Type must be {_FORM} or one of {', '.join(_RAW)}, got {kind or 'none'!r}."
        )
        raise UnsupportedMediaType(message)
    json_only = kind == _JSON
    setting = "INLINE_MAX_BODY_MB" if json_only else "INLINE_MAX_UPLOAD_MB"
    settings = services.settings
    limit = settings.max_body_mb if json_only else settings.max_upload_mb
    with services.assets.incoming(limit * MIB, setting) as incoming:
        await receive(request.stream(), incoming)
        if incoming.size_bytes == 0:
            message = "The upload is empty."
            raise InvalidRequest(message)
        incoming.flush()
        form = content_type if kind == _FORM else None
        return JSONResponse(await asyncio.to_thread(_read, services, incoming.path, form))


def _read(services: Services, path: FilePath, form: str | None) -> dict[str, Any]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as body:
        start, end = (0, len(body)) if form is None else file_part(body, form, "file")
        return imported(services, body, start, end)
