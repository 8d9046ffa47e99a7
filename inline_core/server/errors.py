"""Errors on the wire: one envelope, and the one table from error codes to HTTP statuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from inline_core.errors import GraphProblem, InlineError, Internal, InvalidGraph

_log = structlog.get_logger(__name__)

STATUS_OF_CODE: Mapping[str, int] = {
    "invalid_request": 422,
    "invalid_graph": 422,
    "invalid_param": 422,
    "invalid_asset": 422,
    "no_recipe": 422,
    "malformed_json": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "conflict": 409,
    "hub_offline": 409,
    "hub_refused": 403,
    "hub_not_found": 404,
    "output_unavailable": 410,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "range_not_satisfiable": 416,
    "queue_full": 429,
    "internal": 500,
    "hub_unreachable": 502,
    "download_failed": 502,
    "hash_mismatch": 502,
    "size_mismatch": 502,
    "unavailable": 503,
    "worker_lost": 503,
    "disk_full": 507,
}
_CODE_OF_STATUS = {
    400: "malformed_json",
    404: "not_found",
    405: "method_not_allowed",
    416: "range_not_satisfiable",
}


def problem_json(problem: GraphProblem) -> dict[str, Any]:
    """One graph problem, with only the keys that apply."""
    entry: dict[str, Any] = {"code": problem.code, "message": problem.message}
    if problem.node_id is not None:
        entry["nodeId"] = problem.node_id
    if problem.port is not None:
        entry["port"] = problem.port
    if problem.param is not None:
        entry["param"] = problem.param
    return entry


def error_json(error: InlineError) -> dict[str, Any]:
    """The envelope of an error."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.node_id is not None:
        body["nodeId"] = error.node_id
    if error.port is not None:
        body["port"] = error.port
    if error.param is not None:
        body["param"] = error.param
    if error.details:
        body["details"] = error.details
    if isinstance(error, InvalidGraph):
        body["problems"] = [problem_json(problem) for problem in error.problems]
    return {"error": body}


def error_response(error: InlineError) -> JSONResponse:
    """The reply for an error."""
    headers: dict[str, str] = {}
    if "retryAfterS" in error.details:
        headers["Retry-After"] = str(error.details["retryAfterS"])
    if error.code == "unauthorized":
        headers["WWW-Authenticate"] = "Bearer"
    status = STATUS_OF_CODE.get(error.code, 500)
    return JSONResponse(error_json(error), status, headers)


def install_error_handlers(app: FastAPI) -> None:
    """Answer every failure of a route in the envelope."""

    @app.exception_handler(InlineError)
    async def _inline(_: Request, error: InlineError) -> JSONResponse:
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def _validation(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": validation_body(error.errors())}, 422)

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> JSONResponse:
        code = _CODE_OF_STATUS.get(error.status_code, "invalid_request")
        body = {"error": {"code": code, "message": str(error.detail)}}
        return JSONResponse(body, error.status_code, error.headers)

    @app.exception_handler(ClientDisconnect)
    async def _left(_: Request, __: ClientDisconnect) -> Response:
        # Nobody is there to read this.
        return Response(status_code=400)

    @app.exception_handler(Exception)
    async def _unforeseen(request: Request, error: Exception) -> JSONResponse:
        _log.error("route failed", path=request.url.path, exc_info=error)
        return error_response(Internal("The server failed at this request; its log has why."))


def validation_body(errors: Any) -> dict[str, Any]:
    """The first problem in words, and all of them as a list (from pydantic's error list)."""
    problems = [
        {
            "code": "invalid_request",
            "message": f"{'.'.join(str(part) for part in entry['loc'])}: {entry['msg']}",
        }
        for entry in errors
    ]
    return {
        "code": "invalid_request",
        "message": problems[0]["message"] if problems else "The request is not valid.",
        "problems": problems,
    }
