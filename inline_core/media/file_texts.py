"""The recipe text in mp4, wav and flac files: how it is written, and how it is found again.

Formats: ISO/IEC 14496-12 boxes with the item list of QuickTime metadata (`©cmt`), RIFF INFO chunks
(`ICMT`), FLAC metadata blocks with Vorbis comments.  Nothing is decoded for reading.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from mmap import mmap
from typing import Any, Final

MAX_TEXT_BYTES: Final = 64 * 1024 * 1024
MIN_HEAD_BYTES: Final = 12

_SPECIAL: Final = re.compile(r"[=;#\\\n]")
_FULL_BOX_BYTES: Final = 4
_DATA_HEAD_BYTES: Final = 8
_COMMENT_BLOCK: Final = 4
_COMMENT_KEYS: Final = (b"COMMENT=", b"DESCRIPTION=")


def recipe_line(facts: Mapping[str, Any]) -> str:
    """The facts of a take as one line of JSON in ASCII, which every container keeps unchanged."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":"))


def ffmetadata(comment: str) -> bytes:
    """A metadata file for ffmpeg that holds `comment`; unlike an argument, it may be long."""
    escaped = _SPECIAL.sub(r"\\\g<0>", comment)
    return f";FFMETADATA1\ncomment={escaped}\n".encode()


def info_chunk(comment: str) -> bytes:
    """The LIST chunk of a RIFF file with `comment` in it."""
    text = comment.encode() + b"\0"
    text += b"\0" * (len(text) % 2)
    body = b"INFOICMT" + struct.pack("<I", len(text)) + text
    return b"LIST" + struct.pack("<I", len(body)) + body


def read_comment(data: bytes | mmap, start: int, end: int) -> str | None:
    """The comment in the mp4, wav or flac at data[start:end]; None if there is none.

    A file that is cut off or damaged gives None.
    """
    head = data[start : min(start + MIN_HEAD_BYTES, end)]
    with suppress(struct.error):
        if head[4:8] == b"ftyp":
            return _of_mp4(data, start, end)
        if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
            return _of_wav(data, start + 12, end)
        if head[:4] == b"fLaC":
            return _of_flac(data, start + 4, end)
    return None


def _of_mp4(data: bytes | mmap, start: int, end: int) -> str | None:
    for wanted in (b"moov", b"udta", b"meta", b"ilst", b"\xa9cmt", b"data"):
        found = next((box for box in _boxes(data, start, end) if box[0] == wanted), None)
        if found is None:
            return None
        _, start, end = found
        if wanted == b"meta":
            start += _FULL_BOX_BYTES
    return _text(data, start + _DATA_HEAD_BYTES, end)


def _boxes(data: bytes | mmap, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Kind, first and last + 1 byte of the content of each box."""
    while start + 8 <= end:
        size, kind = struct.unpack(">I4s", data[start : start + 8])
        head = 8
        if size == 1:
            (size,) = struct.unpack(">Q", data[start + 8 : start + 16])
            head = 16
        elif size == 0:
            size = end - start
        if size < head or start + size > end:
            return
        yield kind, start + head, start + size
        start += size


def _of_wav(data: bytes | mmap, start: int, end: int) -> str | None:
    for kind, first, last in _chunks(data, start, end):
        if kind == b"LIST" and data[first : first + 4] == b"INFO":
            for name, begin, stop in _chunks(data, first + 4, last):
                if name == b"ICMT":
                    return _text(data, begin, stop)
    return None


def _chunks(data: bytes | mmap, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    while start + 8 <= end:
        kind, size = struct.unpack("<4sI", data[start : start + 8])
        yield kind, start + 8, min(start + 8 + size, end)
        start += 8 + size + size % 2


def _of_flac(data: bytes | mmap, start: int, end: int) -> str | None:
    while start + 4 <= end:
        (head,) = struct.unpack(">I", data[start : start + 4])
        kind, size = head >> 24, head & 0xFFFFFF
        start += 4
        if kind & 0x7F == _COMMENT_BLOCK:
            return _of_comments(data, start, min(start + size, end))
        if kind & 0x80:
            break
        start += size
    return None


def _of_comments(data: bytes | mmap, start: int, end: int) -> str | None:
    (vendor,) = struct.unpack("<I", data[start : start + 4])
    start += 4 + vendor
    (count,) = struct.unpack("<I", data[start : start + 4])
    start += 4
    for _ in range(count):
        (size,) = struct.unpack("<I", data[start : start + 4])
        start += 4
        for key in _COMMENT_KEYS:
            if data[start : start + len(key)].upper() == key:
                return _text(data, start + len(key), min(start + size, end))
        start += size
    return None


def _text(data: bytes | mmap, start: int, end: int) -> str | None:
    if end - start > MAX_TEXT_BYTES:
        return None
    return data[start:end].rstrip(b"\0").decode("utf-8", "replace")
