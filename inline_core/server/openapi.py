"""What the OpenAPI document says beyond what FastAPI reads from the routes itself."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from inline_core.server.models import ErrorEnvelope

_DESCRIPTIONS = {
    400: "The body is not JSON.",
    401: "A token is needed.",
    403: "Host, Origin or path not allowed.",
    404: "There is no such thing.",
    409: "It contradicts what is stored.",
    410: "It is gone for good.",
    413: "The body is too large.",
    415: "The content type is not one this route takes.",
    416: "The range is outside the file.",
    422: "The request is understood, and not valid.",
    429: "The queue is full; see Retry-After.",
    503: "The server is stopping.",
    507: "The disk is full.",
}
_ALWAYS = (401, 403)


def replies(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error replies of a route, for its `responses`."""
    return {
        status: {"model": ErrorEnvelope, "description": _DESCRIPTIONS[status]}
        for status in sorted({*_ALWAYS, *statuses})
    }


def json_body(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """The request body of a route that reads its body itself, for its `openapi_extra`."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": _inlined(schema, definitions), "example": example}
            },
        }
    }


def bytes_body(description: str) -> dict[str, Any]:
    """A raw request body, for the `openapi_extra` of an upload route."""
    return {
        "requestBody": {
            "required": True,
            "description": description,
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    }


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema with its local definitions put in place (none of ours is recursive)."""
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if reference is not None:
            return _inlined(definitions[reference.rpartition("/")[2]], definitions)
        return {key: _inlined(value, definitions) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_inlined(value, definitions) for value in schema]
    return schema
