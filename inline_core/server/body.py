"""Reading request bodies: capped while they stream in, strict JSON, a clear error for the rest."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from inline_core.errors import InvalidRequest, PayloadTooLarge, UnsupportedMediaType

Model = TypeVar("Model", bound=BaseModel)


class MalformedJson(InvalidRequest):
    """The body is not JSON at all."""

    code = "malformed_json"


async def read_json(request: Request, limit_bytes: int) -> Any:
    """The decoded JSON body of a request.

    Raises: UnsupportedMediaType, PayloadTooLarge, MalformedJson.
    """
    content_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if content_type != "application/json":
        message = f"Content-Type must be application/json, got {content_type or 'none'!r}."
        raise UnsupportedMediaType(message)
    return decode_json(await read_bytes(request, limit_bytes))


async def read_bytes(request: Request, limit_bytes: int) -> bytes:
    """The body of a request, read as it comes.  Raises: PayloadTooLarge."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit_bytes:
            message = (
                f"The body is larger than the limit of {limit_bytes} bytes "
                "(setting INLINE_MAX_BODY_MB)."
            )
            raise PayloadTooLarge(message, details={"limitBytes": limit_bytes})
        chunks.append(chunk)
    return b"".join(chunks)


def decode_json(body: bytes) -> Any:
    """Strict JSON: UTF-8, finite numbers, whole Unicode characters.  Raises: MalformedJson."""
    try:
        document = json.loads(body, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        message = f"The body is not valid JSON: {why}."
        raise MalformedJson(message) from error
    if b"\\ud" in body or b"\\uD" in body:
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except (UnicodeEncodeError, RecursionError) as error:
            message = "The body holds half of a Unicode surrogate pair."
            raise MalformedJson(message) from error
    return document


def _refuse(name: str) -> NoReturn:
    message = f"{name} is not a JSON number"
    raise ValueError(message)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        message = f"{text} is too large a number"
        raise ValueError(message)
    return number


def parse_model(model: type[Model], document: Any) -> Model:
    """Check a decoded body against a model.  Raises: RequestValidationError (422)."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error
