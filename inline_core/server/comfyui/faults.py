"""Errors in the shape that ComfyUI's clients read, and routes that answer every failure in it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import structlog
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from inline_core.errors import InlineError
from inline_core.server.errors import STATUS_OF_CODE, error_json, validation_body

_log = structlog.get_logger(__name__)
_INTERNAL = "The server failed at this request; its log has why."

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Refused(Exception):
    """A prompt that is not taken; `node_errors` says what is wrong at which node."""

    def __init__(
        self,
        kind: str,
        message: str,
        details: str = "",
        *,
        status: int = 400,
        extra: Mapping[str, Any] | None = None,
        node_errors: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.details = details
        self.status = status
        self.extra = dict(extra or {})
        self.node_errors = dict(node_errors or {})

    def body(self) -> dict[str, Any]:
        """As it goes over the wire."""
        return fault_body(self.kind, self.message, self.details, self.extra, self.node_errors)


def fault_body(
    kind: str,
    message: str,
    details: str = "",
    extra: Mapping[str, Any] | None = None,
    node_errors: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The envelope of an error."""
    return {
        "error": {
            "type": kind,
            "message": message,
            "details": details,
            "extra_info": dict(extra or {}),
        },
        "node_errors": dict(node_errors or {}),
    }


class ComfyRoute(APIRoute):
    """A route whose failures have ComfyUI's shape, whatever they are."""

    def get_route_handler(self) -> Handler:
        """The handler with the route border around it."""
        handle = super().get_route_handler()

        async def bordered(request: Request) -> Response:
            try:
                return await handle(request)
            except Refused as refused:
                return JSONResponse(refused.body(), refused.status)
            except InlineError as error:
                return _of_ours(error)
            except RequestValidationError as error:
                told = validation_body(error.errors())
                return JSONResponse(fault_body("invalid_request", told["message"]), 400)
            except ClientDisconnect:
                # Nobody is there to read this.
                return Response(status_code=400)
            except Exception:  # noqa: BLE001 - the route border: logged, and never shown raw
                _log.exception("route failed", path=request.url.path)
                return JSONResponse(fault_body("internal", _INTERNAL), 500)

        return bordered


def _of_ours(error: InlineError) -> JSONResponse:
    told = error_json(error)["error"]
    extra = {key: value for key, value in told.items() if key not in {"code", "message"}}
    headers: dict[str, str] = {}
    if "retryAfterS" in error.details:
        headers["Retry-After"] = str(error.details["retryAfterS"])
    status = STATUS_OF_CODE.get(error.code, 500)
    return JSONResponse(fault_body(error.code, error.message, extra=extra), status, headers)
