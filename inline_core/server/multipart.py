"""The one file of a form upload (multipart/form-data, RFC 7578)."""

from __future__ import annotations

from email.message import Message
from email.parser import HeaderParser
from mmap import mmap
from typing import Final

from inline_core.errors import InvalidRequest

_MAX_HEADERS: Final = 16 * 1024


def file_part(body: mmap, content_type: str, field: str) -> tuple[int, int]:
    """Where the content of form field `field` starts and ends in `body`.

    Raises: InvalidRequest if the body is no such form or has no such field.
    """
    head = Message()
    head["content-type"] = content_type
    boundary = head.get_boundary()
    if not boundary:
        message = "The form has no boundary in its Content-Type."
        raise InvalidRequest(message)
    delimiter = b"--" + boundary.encode("latin-1", "replace")
    place = body.find(delimiter, 0, len(delimiter) + _MAX_HEADERS)
    while place >= 0:
        start = place + len(delimiter)
        if body[start : start + 2] == b"--":
            break
        gap = body.find(b"\r\n\r\n", start, start + _MAX_HEADERS)
        end = body.find(b"\r\n" + delimiter, gap)
        if gap < 0 or end < 0:
            message = "The form is cut off, or its parts are not separated as they should be."
            raise InvalidRequest(message)
        if _name_of(body[start + 2 : gap + 2]) == field:
            return gap + 4, end
        place = end + 2
    message = f"The form has no file in a field named {field!r}."
    raise InvalidRequest(message)


def _name_of(headers: bytes) -> str | None:
    parsed = HeaderParser().parsestr(headers.decode("utf-8", "replace"))
    name = parsed.get_param("name", header="content-disposition")
    return name if isinstance(name, str) else None
