"""The application: routes, gate, error envelope, pages, and the life of the services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.types import Receive, Scope, Send

from inline_core.server.comfyui.router import add_comfyui_api
from inline_core.server.errors import install_error_handlers
from inline_core.server.guard import Guard, MethodRules, UnderPrefix
from inline_core.server.routes import (
    downloads,
    events,
    importing,
    memory,
    queue,
    recipes,
    runs,
    system,
    takes,
)
from inline_core.server.services import Services, build_services, resolve_token
from inline_core.server.static import Pages
from inline_core.settings import Settings
from inline_core.version import __version__

_DESCRIPTION = """Typed node graphs in, durable runs, immutable takes out.

Start with `POST /v1/runs`. Every error has the shape `{"error": {"code", "message", ...}}`.
The stream of a run is the websocket `/v1/runs/{runId}/events`."""


def create_app(settings: Settings, services: Services | None = None) -> FastAPI:
    """A server application; its services start with its lifespan.

    Raises: AlreadyRunning if another server uses the data folder.
    """
    parts = services or build_services(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        parts.hub.bind(asyncio.get_running_loop())
        await asyncio.to_thread(parts.start)
        yield
        parts.hub.close()
        await asyncio.to_thread(parts.stop)

    app = FastAPI(
        title="Inline Core",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        # Our own page at /docs reads the document; FastAPI's loads scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = parts
    known = list(app.router.routes)
    # Requirements before system: its path of a node type would take them for a part of the type.
    for module in (runs, events, queue, takes, recipes, importing, memory, downloads, system):
        app.include_router(module.router)
        known.extend(module.router.routes)
    if settings.comfyui_api:
        known.extend(add_comfyui_api(app, parts))
    install_error_handlers(app)
    pages = Pages(settings)

    async def fallback(scope: Scope, receive: Receive, send: Send) -> None:
        await pages(scope, receive, send)

    app.router.default = fallback
    app.add_middleware(MethodRules, routes=known)
    app.add_middleware(
        Guard,
        host=settings.host,
        token=resolve_token(settings),
        allowed_hosts=settings.allowed_hosts,
        allowed_origins=settings.allowed_origins,
    )
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["ETag"],
        )
    app.add_middleware(UnderPrefix, prefix=settings.root_path)
    return app
