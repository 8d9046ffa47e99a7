"""Files: look at results and inputs, upload inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from inline_core.engine.media_access import input_file
from inline_core.errors import Forbidden, InvalidAsset, NotFound
from inline_core.media.kinds import media_type_of
from inline_core.media.masking import in_channel, small
from inline_core.server.comfyui.faults import ComfyRoute, Refused
from inline_core.server.comfyui.folders import media_type_of_name
from inline_core.server.comfyui.naming import annotated, take_id_in
from inline_core.server.comfyui.scope import ApiOf
from inline_core.server.comfyui.uploads import store_upload
from inline_core.server.routes.takes import receive
from inline_core.server.services import Services
from inline_core.settings import MIB

router = APIRouter(route_class=ComfyRoute, include_in_schema=False)
_FORM: Final = "multipart/form-data"
_DEFAULT_QUALITY: Final = 90
_MAX_QUALITY: Final = 100
# What a client uploaded is never run by a browser as a page of this server.
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
}


@router.get("/view")
def view(
    api: ApiOf,
    filename: Annotated[str, Query()] = "",
    subfolder: Annotated[str, Query()] = "",
    kind: Annotated[str, Query(alias="type")] = "output",
    preview: Annotated[str | None, Query(description="`webp;90` or `jpeg;80`.")] = None,
    channel: Annotated[str, Query(description="`rgb`, `a` or `rgba`.")] = "rgba",
) -> Response:
    """A file by its name: a take by the id in it, or a file of the input folder."""
    name, told = annotated(filename)
    try:
        path, media_type = _found(api.services, name, subfolder, told or kind)
    except Forbidden as error:
        raise Refused("forbidden", error.message, status=400) from error
    headers = {**_HEADERS, "Content-Disposition": _disposition(name)}
    limit = api.services.settings.max_pixels
    picture = media_type.startswith("image/")
    try:
        if picture and preview:
            wanted, quality = _preview(preview)
            data = small(path.read_bytes(), wanted, quality, max_pixels=limit)
            return Response(data, media_type=f"image/{wanted}", headers=headers)
        if picture and channel in {"rgb", "a"}:
            data = in_channel(path.read_bytes(), channel, max_pixels=limit)
            return Response(data, media_type="image/png", headers=headers)
    except InvalidAsset as error:
        raise Refused("invalid_request", error.message) from error
    return FileResponse(path, media_type=media_type, headers=headers)


def _found(services: Services, name: str, subfolder: str, kind: str) -> tuple[Path, str]:
    """Raises: NotFound, Forbidden, Refused."""
    if kind == "input":
        full = f"{subfolder.strip('/')}/{name}" if subfolder else name
        return input_file(services.settings.input_folder, full), media_type_of_name(name)
    if kind not in {"output", "temp"}:
        message = f"There is no folder {kind!r}; there are input, output and temp."
        raise Refused("invalid_request", message)
    take_id = take_id_in(name)
    if take_id is None:
        message = f"Nothing made here is called {name!r}."
        raise NotFound(message)
    take = services.queries.take(take_id)
    path = services.takes.path(take.sha256, take.extension)
    if take.deleted_at_ms is not None or not path.is_file():
        message = f"The file of {name!r} is gone."
        raise NotFound(message)
    return path, media_type_of(take.extension)


def _disposition(name: str) -> str:
    plain = name.encode("ascii", "replace").decode().replace('"', "'").replace("\\", "/")
    return f'filename="{"".join(letter for letter in plain if letter.isprintable())}"'


def _preview(text: str) -> tuple[str, int]:
    """Format and quality of a preview; what is not understood is WebP at 90."""
    kind, _, number = text.partition(";")
    quality = int(number) if number.isascii() and number.isdigit() else _DEFAULT_QUALITY
    wanted = "jpeg" if kind.lower() in {"jpeg", "jpg"} else "webp"
    return wanted, min(_MAX_QUALITY, max(1, quality))


@router.post("/upload/image")
async def upload_image(request: Request, api: ApiOf) -> JSONResponse:
    """Put a file into the input folder; other content under the same name gets a number."""
    return JSONResponse(await _uploaded(request, api.services, mask=False))


@router.post("/upload/mask")
async def upload_mask(request: Request, api: ApiOf) -> JSONResponse:
    """The picture of `original_ref` with the alpha of the uploaded one, as a new input file.

    Without `original_ref` the uploaded file is kept as it is.
    """
    return JSONResponse(await _uploaded(request, api.services, mask=True))


async def _uploaded(request: Request, services: Services, *, mask: bool) -> dict[str, Any]:
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != _FORM:
        message = f"Send the file as a form ({_FORM}), in its field 'image'."
        raise Refused("invalid_request", message)
    limit = services.settings.max_upload_mb * MIB
    with services.assets.incoming(limit, "INLINE_MAX_UPLOAD_MB") as incoming:
        await receive(request.stream(), incoming)
        if incoming.size_bytes == 0:
            message = "The upload is empty."
            raise Refused("no_file", message)
        incoming.flush()
        return await run_in_threadpool(
            store_upload, services, incoming.path, content_type, mask=mask
        )
