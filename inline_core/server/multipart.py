"""The parts of a form upload (multipart/form-data, RFC 7578)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from mmap import mmap
from typing import Final

from inline_core.errors import InvalidRequest

_MAX_HEADERS: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class FormPart:
    """One field of a form, and where its content starts and ends in the body."""

    name: str | None
    filename: str | None
    start: int
    end: int


def file_part(body: mmap | bytes, content_type: str, field: str) -> tuple[int, int]:
    """Where the content of form field `field` starts and ends in `body`.

    Raises: InvalidRequest if the body is no such form or has no such field.
    """
    for part in form_parts(body, content_type):
        if part.name == field:
            return part.start, part.end
    message = f"The form has no file in a field named {field!r}."
    raise InvalidRequest(message)


def form_parts(body: mmap | bytes, content_type: str) -> Iterator[FormPart]:
    """The fields of a form, in order.

    Raises: InvalidRequest if the body is no form, or cut off.
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
            return
        gap = body.find(b"\r\n\r\n", start, start + _MAX_HEADERS)
        end = body.find(b"\r\n" + delimiter, gap)
        if gap < 0 or end < 0:
            message = "The form is cut off, or its parts are not separated as they should be."
            raise InvalidRequest(message)
        name, filename = _names_of(body[start + 2 : gap + 2])
        yield FormPart(name, filename, gap + 4, end)
        place = end + 2


def _names_of(headers: bytes) -> tuple[str | None, str | None]:
    """Name and file name of a part, as its Content-Disposition has them."""
    parsed = HeaderParser().parsestr(headers.decode("utf-8", "replace"))
    name = parsed.get_param("name", header="content-disposition")
    return name if isinstance(name, str) else None, parsed.get_filename()
