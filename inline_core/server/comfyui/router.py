"""All routes of this API, at the root and again below `/api`, as clients use both."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, WebSocket
from starlette.routing import BaseRoute

from inline_core.server.comfyui import (
    file_routes,
    info_routes,
    job_routes,
    prompt_routes,
    userdata_routes,
)
from inline_core.server.comfyui.scope import api_of, make_api
from inline_core.server.services import Services

_PREFIXES = ("", "/api")

socket = APIRouter()


@socket.websocket("/ws")
async def client_socket(websocket: WebSocket) -> None:
    """Messages about the prompts of `?clientId=`; the first one is `status` with the id."""
    await api_of(websocket).sockets.serve(websocket)


def add_comfyui_api(app: FastAPI, services: Services) -> list[BaseRoute]:
    """Serve the API with this application; gives its routes."""
    app.state.comfyui = make_api(services)
    added: list[BaseRoute] = []
    for prefix in _PREFIXES:
        whole = APIRouter(prefix=prefix)
        parts = [prompt_routes, file_routes, info_routes]
        if prefix:
            # Newer parts, which exist below it only: at the root they may be pages.
            parts += [job_routes]
        for part in [*parts, userdata_routes]:
            whole.include_router(part.router)
        whole.include_router(socket)
        app.include_router(whole)
        added.extend(whole.routes)
    return added
