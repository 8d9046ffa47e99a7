"""Takes and assets: bytes in and out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response

from inline_core.errors import InvalidAsset, NotFound, OutputUnavailable, UnsupportedMediaType
from inline_core.media.kinds import media_type_of
from inline_core.media.probe import probe
from inline_core.runs.records import AssetRecord, now_ms
from inline_core.server.conditional import not_modified
from inline_core.server.models import AssetList, AssetModel, TakeList, TakeModel
from inline_core.server.openapi import bytes_body, replies
from inline_core.server.paging import DEFAULT_PAGE, MAX_PAGE, decode_cursor, encode_cursor
from inline_core.server.scope import ServicesOf
from inline_core.server.services import Services
from inline_core.server.wire import asset_json, take_json
from inline_core.settings import MIB
from inline_core.takes.files import IncomingFile, disk_errors
from inline_core.takes.take import POSTER_EXTENSION, Take

router = APIRouter()
_IMMUTABLE = "private, max-age=31536000, immutable"
_BYTES_REPLIES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}},
    206: {"description": "The bytes of a Range."},
    304: {"description": "The client has these bytes already."},
}
_MAX_NAME = 200
_INLINE_WRITE_BYTES = 64 * 1024


@router.get("/v1/takes", tags=["takes"], response_model=TakeList, responses=replies(422))
def list_takes(
    services: ServicesOf,
    run: Annotated[str | None, Query(description="Only takes of this run.")] = None,
    kind: Annotated[Literal["image", "video", "audio"] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE,
    cursor: Annotated[str | None, Query(description="`nextCursor` of the page before.")] = None,
) -> JSONResponse:
    """List takes that still have their bytes, newest first."""
    found = services.queries.takes_page(
        run_id=run, kind=kind, limit=limit, before=decode_cursor(cursor)
    )
    page, more = found[:limit], len(found) > limit
    following = encode_cursor(page[-1].created_at_ms, page[-1].id) if more else None
    return JSONResponse({"takes": [take_json(take) for take in page], "nextCursor": following})


@router.get(
    "/v1/takes/{take_id}",
    tags=["takes"],
    response_model=TakeModel,
    responses={**_BYTES_REPLIES, 200: {"model": TakeModel}, **replies(404, 410, 416)},
)
def get_take(take_id: Annotated[str, Path()], request: Request, services: ServicesOf) -> Response:
    """A take; with its extension (its `uri`, `take_....png`) the bytes."""
    stem, _, extension = take_id.partition(".")
    if extension:
        take = services.queries.take(stem)
        if take.extension != extension:
            message = f"Take {stem!r} is a .{take.extension}, not a .{extension}."
            raise NotFound(message)
        return _take_bytes(services, request, take)
    return JSONResponse(take_json(services.queries.take(take_id)))


@router.get(
    "/v1/takes/{take_id}/bytes",
    tags=["takes"],
    response_class=FileResponse,
    responses={**_BYTES_REPLIES, **replies(404, 410, 416)},
)
def get_take_bytes(
    take_id: Annotated[str, Path()], request: Request, services: ServicesOf
) -> Response:
    """The file of a take; Range, ETag and If-None-Match work."""
    return _take_bytes(services, request, services.queries.take(take_id))


@router.get(
    "/v1/takes/{take_id}/poster",
    tags=["takes"],
    response_class=FileResponse,
    responses={**_BYTES_REPLIES, **replies(404, 410, 416)},
)
def get_take_poster(
    take_id: Annotated[str, Path()], request: Request, services: ServicesOf
) -> Response:
    """A small still picture of a video (JPEG, longest side 512); other takes have none."""
    take = services.queries.take(take_id)
    _check_there(take)
    if take.poster is None:
        message = f"Take {take_id!r} is {take.kind.value}; only videos have a poster."
        raise NotFound(message)
    path = services.takes.path(take.poster, POSTER_EXTENSION)
    if not path.is_file():
        message = f"The poster of take {take_id!r} is gone from the disk; the video may be there."
        raise OutputUnavailable(message)
    return _file(request, path, take.poster, media_type_of(POSTER_EXTENSION))


@router.delete(
    "/v1/takes/{take_id}", tags=["takes"], status_code=204, responses=replies(404, 410, 503)
)
def delete_take(take_id: Annotated[str, Path()], services: ServicesOf) -> None:
    """Delete a take and free its bytes; it answers 410 from then on."""
    services.library.delete_take(take_id).result()


def _take_bytes(services: Services, request: Request, take: Take) -> Response:
    _check_there(take)
    path = services.takes.path(take.sha256, take.extension)
    if not path.is_file():
        message = (
            f"The bytes of take {take.id!r} are gone from the disk; retrying will not help. "
            "Run its graph again."
        )
        raise OutputUnavailable(message)
    return _file(request, path, take.sha256, media_type_of(take.extension))


def _check_there(take: Take) -> None:
    if take.deleted_at_ms is not None:
        message = f"Take {take.id!r} was deleted; retrying will not help."
        raise OutputUnavailable(message)


def _file(request: Request, path: FilePath, sha256: str, media_type: str) -> Response:
    etag = f'"{sha256}"'
    headers = {
        "ETag": etag,
        "Cache-Control": _IMMUTABLE,
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    if not_modified(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    return FileResponse(path, media_type=media_type, headers=headers)


@router.post(
    "/v1/assets",
    tags=["assets"],
    response_model=AssetModel,
    responses=replies(400, 413, 415, 422, 503, 507),
    openapi_extra=bytes_body("The raw bytes of a picture, video or sound (not multipart)."),
)
async def upload_asset(
    request: Request,
    services: ServicesOf,
    name: Annotated[str | None, Query(max_length=_MAX_NAME, description="A name to keep.")] = None,
) -> JSONResponse:
    """Upload a picture, video or sound; the same bytes always give the same id."""
    if request.headers.get("content-type", "").lower().startswith("multipart/"):
        message = (
            "Send the file's bytes as the body, not as a form: "
            "curl --data-binary @picture.png .../v1/assets"
        )
        raise UnsupportedMediaType(message)
    limit = services.settings.max_upload_mb * MIB
    with services.assets.incoming(limit, "INLINE_MAX_UPLOAD_MB") as incoming:
        await receive(request.stream(), incoming)
        asset = await asyncio.to_thread(_keep, services, incoming, name)
    stored = await asyncio.wrap_future(services.library.add_asset(asset))
    return JSONResponse(asset_json(stored))


async def receive(stream: AsyncIterator[bytes], incoming: IncomingFile) -> None:
    """Stream to the disk; blocking writes leave the event loop."""
    pending = bytearray()
    with disk_errors("the upload"):
        async for chunk in stream:
            pending += chunk
            if len(pending) >= _INLINE_WRITE_BYTES:
                await asyncio.to_thread(incoming.write, bytes(pending))
                pending.clear()
        if pending:
            await asyncio.to_thread(incoming.write, bytes(pending))


def _keep(services: Services, incoming: IncomingFile, name: str | None) -> AssetRecord:
    if incoming.size_bytes == 0:
        message = "The upload is empty."
        raise InvalidAsset(message)
    incoming.flush()
    info = probe(incoming.path, max_pixels=services.settings.max_pixels, name="The uploaded file")
    sha256 = incoming.keep(info.format.extension)
    return AssetRecord(
        id=f"sha256-{sha256}",
        sha256=sha256,
        kind=info.format.kind.value,
        media_type=info.format.media_type,
        extension=info.format.extension,
        size_bytes=incoming.size_bytes,
        width=info.width,
        height=info.height,
        duration_s=info.duration_s,
        name=unquote(name) if name else None,
        created_at_ms=now_ms(),
    )


def keep_file(services: Services, path: FilePath) -> AssetRecord:
    """Make a local file an asset (for the command line).  Raises: InvalidAsset, DiskFull."""
    limit = services.settings.max_upload_mb * MIB
    with (
        services.assets.incoming(limit, "INLINE_MAX_UPLOAD_MB") as incoming,
        path.open("rb") as file,
    ):
        while chunk := file.read(MIB):
            incoming.write(chunk)
        asset = _keep(services, incoming, path.name)
    return services.library.add_asset(asset).result()


@router.get("/v1/assets", tags=["assets"], response_model=AssetList, responses=replies(422))
def list_assets(
    services: ServicesOf,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE,
    cursor: Annotated[str | None, Query(description="`nextCursor` of the page before.")] = None,
) -> JSONResponse:
    """List assets, newest first."""
    found = services.queries.assets_page(limit=limit, before=decode_cursor(cursor))
    page, more = found[:limit], len(found) > limit
    following = encode_cursor(page[-1].created_at_ms, page[-1].id) if more else None
    return JSONResponse({"assets": [asset_json(asset) for asset in page], "nextCursor": following})


@router.get(
    "/v1/assets/{asset_id}", tags=["assets"], response_model=AssetModel, responses=replies(404)
)
def get_asset(asset_id: Annotated[str, Path()], services: ServicesOf) -> JSONResponse:
    """What is known about an asset."""
    return JSONResponse(asset_json(services.queries.asset(asset_id)))


@router.get(
    "/v1/assets/{asset_id}/bytes",
    tags=["assets"],
    response_class=FileResponse,
    responses={**_BYTES_REPLIES, **replies(404, 410, 416)},
)
def get_asset_bytes(
    asset_id: Annotated[str, Path()], request: Request, services: ServicesOf
) -> Response:
    """The file of an asset; Range, ETag and If-None-Match work."""
    asset = services.queries.asset(asset_id)
    path = services.assets.path(asset.sha256, asset.extension)
    if not path.is_file():
        message = f"The bytes of asset {asset_id!r} are gone from the disk; upload it again."
        raise OutputUnavailable(message)
    return _file(request, path, asset.sha256, asset.media_type)
