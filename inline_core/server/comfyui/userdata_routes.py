"""Files that a client keeps on the server, saved workflows above all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path as FilePath
from pathlib import PurePosixPath
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response

from inline_core.errors import NotFound
from inline_core.server.body import read_bytes
from inline_core.server.comfyui.faults import ComfyRoute, Refused
from inline_core.server.comfyui.scope import ApiOf
from inline_core.server.services import Services
from inline_core.settings import MIB
from inline_core.takes.files import confined, disk_errors

router = APIRouter(route_class=ComfyRoute, include_in_schema=False)
_FOLDER: Final = "comfyui-userdata"
_MAX_FILES: Final = 20_000
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
}


@router.get("/userdata")
def list_files(
    api: ApiOf,
    folder: Annotated[str, Query(alias="dir")] = "",
    recurse: Annotated[str, Query()] = "",
    full_info: Annotated[str, Query()] = "",
    split: Annotated[str, Query()] = "",
) -> JSONResponse:
    """The files below a folder, by their names inside it."""
    root = _path(api.services, folder, empty=True)
    if not root.is_dir():
        message = f"There is no folder {folder!r}."
        raise NotFound(message)
    found = sorted(_files(root, recurse=recurse.lower() == "true"))
    if full_info.lower() == "true":
        return JSONResponse([_info(root, name) for name in found])
    if split.lower() == "true":
        return JSONResponse([[name, *PurePosixPath(name).parts] for name in found])
    return JSONResponse(found)


def _files(root: FilePath, *, recurse: bool) -> Iterator[str]:
    entries = root.rglob("*") if recurse else root.glob("*")
    for count, path in enumerate(entries):
        if count > _MAX_FILES:
            return
        if path.is_file() and not path.name.startswith("."):
            yield path.relative_to(root).as_posix()


def _info(root: FilePath, name: str) -> dict[str, Any]:
    status = (root / name).stat()
    times = {"modified": int(status.st_mtime * 1000), "created": int(status.st_ctime * 1000)}
    return {"path": name, "size": status.st_size, **times}


@router.get("/userdata/{file:path}")
def read_file(file: Annotated[str, Path()], api: ApiOf) -> Response:
    """The bytes of a file."""
    path = _path(api.services, file)
    if not path.is_file():
        message = f"There is no file {file!r}."
        raise NotFound(message)
    return FileResponse(path, media_type="application/octet-stream", headers=_HEADERS)


@router.post("/userdata/{file:path}")
async def write_file(
    file: Annotated[str, Path()],
    request: Request,
    api: ApiOf,
    overwrite: Annotated[str, Query()] = "true",
    full_info: Annotated[str, Query()] = "",
) -> JSONResponse:
    """Store a file; `overwrite=false` refuses one that is there."""
    data = await read_bytes(request, api.services.settings.max_body_mb * MIB)
    path = _path(api.services, file)
    if overwrite.lower() == "false" and path.exists():
        message = f"{file!r} is there already."
        raise Refused("conflict", message, status=409)
    await asyncio.to_thread(_store, path, data)
    if full_info.lower() == "true":
        return JSONResponse(_info(_path(api.services, "", empty=True), file))
    return JSONResponse(file)


def _store(path: FilePath, data: bytes) -> None:
    with disk_errors("a file of a client"):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.part")
        try:
            beside.write_bytes(data)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


@router.delete("/userdata/{file:path}")
def delete_file(file: Annotated[str, Path()], api: ApiOf) -> Response:
    """Remove a file."""
    path = _path(api.services, file)
    if not path.is_file():
        message = f"There is no file {file!r}."
        raise NotFound(message)
    path.unlink()
    return Response(status_code=204)


def _path(services: Services, name: str, *, empty: bool = False) -> FilePath:
    """Where a file lies, below the folder of clients.  Raises: Refused, Forbidden."""
    root = services.settings.data_dir / _FOLDER
    parts = PurePosixPath(name.replace("\\", "/")).parts
    wrong = ".." in parts or "\0" in name or any(":" in part for part in parts)
    if wrong or name.startswith("/") or not (parts or empty):
        message = f"{name!r} is not the name of a file here."
        raise Refused("forbidden", message, status=403)
    return confined(root, root.joinpath(*parts))
