"""What the routes of this API share, and how they get at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from inline_core.server.body import decode_json, read_bytes
from inline_core.server.comfyui.prompts import Numbers
from inline_core.server.comfyui.sockets import PromptSockets
from inline_core.server.services import Services
from inline_core.settings import MIB


@dataclass(frozen=True, slots=True)
class ComfyApi:
    """The parts of this API; one per application."""

    services: Services
    numbers: Numbers
    sockets: PromptSockets


def make_api(services: Services) -> ComfyApi:
    """The parts, connected to the log."""
    sockets = PromptSockets(services)
    services.database.on_commit(sockets.committed)
    return ComfyApi(services, Numbers(services), sockets)


def api_of(connection: HTTPConnection) -> ComfyApi:
    """The parts of the application that serves this connection."""
    return cast("ComfyApi", connection.app.state.comfyui)


ApiOf = Annotated[ComfyApi, Depends(api_of)]


async def read_document(request: Request, services: Services) -> Any:
    """The JSON body of a request; an empty one is an empty object.

    Its content type is not asked for: many clients send none, and a page of another site is kept
    out by its Origin already.  Raises: PayloadTooLarge, MalformedJson.
    """
    body = await read_bytes(request, services.settings.max_body_mb * MIB)
    return decode_json(body) if body.strip() else {}


async def read_object(request: Request, services: Services) -> dict[str, Any]:
    """The same, as an object; anything else counts as an empty one."""
    document = await read_document(request, services)
    return document if isinstance(document, dict) else {}
