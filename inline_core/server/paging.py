"""Cursors of newest-first listings: opaque to clients, a time and an id inside."""

from __future__ import annotations

import base64
import binascii

from inline_core.errors import InvalidRequest

MAX_PAGE = 500
DEFAULT_PAGE = 50
_MAX_TIME_MS = 2**53


def encode_cursor(at_ms: int, key: str) -> str:
    """The cursor after a row."""
    return base64.urlsafe_b64encode(f"{at_ms}:{key}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> tuple[int, str] | None:
    """The row a cursor stands for; None for the first page.  Raises: InvalidRequest."""
    if cursor is None:
        return None
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        at_ms, _, key = base64.urlsafe_b64decode(padded).decode().partition(":")
        number = int(at_ms)
    except (ValueError, binascii.Error) as error:
        message = "'cursor' is not one that this server gave."
        raise InvalidRequest(message) from error
    if not 0 <= number <= _MAX_TIME_MS:
        message = "'cursor' is not one that this server gave."
        raise InvalidRequest(message)
    return number, key
