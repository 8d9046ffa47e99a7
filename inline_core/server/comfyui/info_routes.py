"""What there is: node types, models, the machine; and freeing memory."""

from __future__ import annotations

import os
import platform
from pathlib import PurePosixPath
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from inline_core.errors import InlineError, NotFound
from inline_core.loading.header import read_header
from inline_core.loading.rules import CATEGORIES, CATEGORY_ALIASES
from inline_core.server.comfyui import declarations
from inline_core.server.comfyui.faults import ComfyRoute
from inline_core.server.comfyui.folders import folder_names, model_names
from inline_core.server.comfyui.scope import ApiOf, read_object
from inline_core.server.comfyui.sockets import features
from inline_core.server.services import Services
from inline_core.settings import MIB
from inline_core.version import __version__

router = APIRouter(route_class=ComfyRoute, include_in_schema=False)
_NO_STORE: Final = {"Cache-Control": "no-store"}


@router.get("/object_info")
def object_info(api: ApiOf) -> JSONResponse:
    """Every node type that can be run here, with the files that are there now."""
    return JSONResponse(declarations.object_info(api.services), headers=_NO_STORE)


@router.get("/object_info/{class_type:path}")
def object_info_of(class_type: Annotated[str, Path()], api: ApiOf) -> JSONResponse:
    """One node type; `{}` if it cannot be run here."""
    if class_type not in declarations.served_types():
        return JSONResponse({}, headers=_NO_STORE)
    body = {class_type: declarations.declaration(api.services, class_type)}
    return JSONResponse(body, headers=_NO_STORE)


@router.get("/system_stats")
def system_stats(api: ApiOf) -> JSONResponse:
    """The machine and its memory; the device is not asked."""
    device = api.services.render.policy.summary()
    name = f"{device['device']} {device['name']}".strip()
    total = (device["vramBudgetMb"] or device["ramTotalMb"] or 0) * MIB
    free = (device["vramFreeMb"] or device["ramFreeMb"] or 0) * MIB
    return JSONResponse(
        {
            "system": {
                "os": os.name,
                "ram_total": device["ramTotalMb"] * MIB,
                "ram_free": (device["ramFreeMb"] or 0) * MIB,
                "comfyui_version": __version__,
                "required_frontend_version": None,
                "python_version": platform.python_version(),
                "pytorch_version": device["torchBuild"] or "",
                "embedded_python": False,
                # Not our own: there may be a token in it.
                "argv": ["main.py"],
            },
            "devices": [
                {
                    "name": name,
                    "type": device["kind"],
                    "index": 0,
                    "vram_total": total,
                    "vram_free": free,
                    "torch_vram_total": total,
                    "torch_vram_free": free,
                }
            ],
        },
        headers=_NO_STORE,
    )


@router.get("/embeddings")
def embeddings(api: ApiOf) -> JSONResponse:
    """The names of textual inversions, as prompts write them."""
    names = model_names(api.services, "embeddings")
    return JSONResponse([str(PurePosixPath(name).with_suffix("")) for name in names])


@router.get("/models")
def model_folders() -> JSONResponse:
    """The folders of models."""
    return JSONResponse(folder_names())


@router.get("/models/{folder}")
def models_in(folder: Annotated[str, Path()], api: ApiOf) -> JSONResponse:
    """The files of a folder of models."""
    _category(folder)
    return JSONResponse(model_names(api.services, folder))


@router.get("/view_metadata/{folder}")
def view_metadata(
    folder: Annotated[str, Path()], api: ApiOf, filename: Annotated[str, Query()] = ""
) -> JSONResponse:
    """What a model file says about itself."""
    path = api.services.catalog.path_of(_category(folder), filename)
    if path is None or not path.is_file():
        message = f"models/{folder} has no file {filename!r}."
        raise NotFound(message)
    try:
        metadata = read_header(path, filename).metadata
    except InlineError as error:
        raise NotFound(error.message) from error
    if not metadata:
        message = f"{filename!r} says nothing about itself."
        raise NotFound(message)
    return JSONResponse(dict(metadata))


def _category(folder: str) -> str:
    category = CATEGORY_ALIASES.get(folder, folder)
    if category not in CATEGORIES:
        message = f"There is no folder of models {folder!r}."
        raise NotFound(message)
    return category


@router.post("/free")
async def free(request: Request, api: ApiOf) -> Response:
    """Drop models that no run uses (`unload_models`), and kept values too (`free_memory`)."""
    document = await read_object(request, api.services)
    await run_in_threadpool(_freed, api.services, document)
    return Response()


def _freed(services: Services, document: dict[str, Any]) -> None:
    if document.get("unload_models") or document.get("free_memory"):
        services.render.free()
    if document.get("free_memory"):
        services.cache.clear()


@router.get("/features")
def get_features(api: ApiOf) -> JSONResponse:
    """What this server can do beyond the basics."""
    return JSONResponse(features(api.services))


@router.get("/extensions")
def extensions() -> JSONResponse:
    """Scripts for ComfyUI's own page: there are none here."""
    return JSONResponse([])
