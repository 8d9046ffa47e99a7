"""The texts in a PNG file, read chunk by chunk without decoding the picture.

Format: PNG specification, third edition (tEXt, zTXt and iTXt chunks).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from mmap import mmap
from typing import Final

from inline_core.errors import InvalidAsset

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
MAX_TEXT_BYTES: Final = 64 * 1024 * 1024

_HEAD_BYTES: Final = 8
_CHECK_BYTES: Final = 4
_TEXT_KINDS: Final = (b"tEXt", b"zTXt", b"iTXt")


def read_texts(data: bytes | mmap, start: int, end: int) -> dict[str, str]:
    """Keyword -> text of the text chunks of the PNG at data[start:end], the first of each keyword.

    A file that ends too early gives the texts before that place, as long as there are any.
    Raises: InvalidAsset for a damaged text, one over 64 MiB, or a file cut off before any.
    """
    texts: dict[str, str] = {}
    for kind, body in _chunks(data, start, end, found=texts):
        keyword, _, rest = body.partition(b"\x00")
        name = keyword.decode("latin-1")
        if name not in texts:
            texts[name] = _text(kind, name, rest)
    return texts


def _chunks(
    data: bytes | mmap, start: int, end: int, found: dict[str, str]
) -> Iterator[tuple[bytes, bytes]]:
    """Kind and body of the text chunks."""
    place = start + len(SIGNATURE)
    while True:
        if place + _HEAD_BYTES > end:
            break
        size, kind = struct.unpack(">I4s", data[place : place + _HEAD_BYTES])
        first = place + _HEAD_BYTES
        place = first + size + _CHECK_BYTES
        if place > end:
            break
        if kind == b"IEND":
            return
        if kind not in _TEXT_KINDS:
            continue
        body = data[first : first + size]
        (check,) = struct.unpack(">I", data[first + size : place])
        if zlib.crc32(body, zlib.crc32(kind)) != check:
            message = "The text in this PNG is damaged (its checksum is wrong)."
            raise InvalidAsset(message)
        yield kind, body
    if not found:
        message = "This PNG is damaged: it ends in the middle, and no recipe comes before that."
        raise InvalidAsset(message)


def _text(kind: bytes, name: str, rest: bytes) -> str:
    if kind == b"tEXt":
        return rest.decode("latin-1")
    if kind == b"zTXt":
        return _unpacked(name, rest[1:]).decode("latin-1")
    # iTXt: compressed flag, method, language NUL, translated keyword NUL, text
    packed, after = rest[:1] == b"\x01", rest[2:].split(b"\x00", 2)
    if len(after) < 3:  # noqa: PLR2004 - language, translated keyword, text
        message = f"The text {name!r} in this PNG is damaged."
        raise InvalidAsset(message)
    body = _unpacked(name, after[2]) if packed else after[2]
    return body.decode("utf-8", "replace")


def _unpacked(name: str, packed: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed, MAX_TEXT_BYTES)
    except zlib.error as error:
        message = f"The text {name!r} in this PNG is damaged."
        raise InvalidAsset(message) from error
    if not unpacker.eof:
        more = len(text) >= MAX_TEXT_BYTES
        message = f"The text {name!r} in this PNG is {'too large' if more else 'cut off'}."
        raise InvalidAsset(message)
    return text
