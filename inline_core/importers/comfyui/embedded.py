"""The texts in which media files carry a ComfyUI workflow, found without decoding any picture.

Places, by kind of file: PNG text chunks and APNG `comf` chunks; EXIF strings `key:{json}` in WebP,
JPEG and AVIF; tags of mp4, webm, flac, ogg and mp3; `asset.extras` of GLB; `__metadata__` of
safetensors.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import av
from PIL import Image as PillowImage
from PIL import UnidentifiedImageError

from inline_core.errors import InvalidAsset
from inline_core.media.png_text import SIGNATURE, read_texts
from inline_core.media.streams import SAFE_OPTIONS

_KEYS: Final = ("workflow", "prompt")
_EXIF_HEAD: Final = b"Exif\x00\x00"
_EXIF_PART: Final = 0x8769
_TEXT_TYPES: Final = frozenset({1, 2, 7})
"""BYTE, ASCII and UNDEFINED."""
_GLB_HEAD_BYTES: Final = 20
_MAX_HEADER_BYTES: Final = 100 * 1024 * 1024
_JPEG_MARKER: Final = 0xFF
_APP1: Final = 0xE1
_LENGTH_BYTES: Final = 2
"""A JPEG segment's length counts its own bytes."""
_BYTES_INSIDE: Final = 4
"""Values of a TIFF entry up to this size lie inside it."""


def embedded_texts(data: bytes) -> tuple[str, dict[str, str]] | None:
    """Kind of the file and the texts `workflow` and `prompt` in it; None if it is no media file.

    Other texts (`parameters` of other programs, say) are left out; the dict may be empty.
    Raises: InvalidAsset for a file that is damaged before any text.
    """
    for kind, fits, read in _READERS:
        if fits(data):
            try:
                return kind, read(data)
            except (struct.error, ValueError, LookupError, OSError, SyntaxError) as error:
                message = f"This {kind} file is damaged: its metadata cannot be read ({error})."
                raise InvalidAsset(message) from error
    return None


def _wanted(texts: Mapping[str, str]) -> dict[str, str]:
    """The two texts, whatever the case of their keys; else a comment that holds them both."""
    lowered = {key.lower(): text for key, text in reversed(list(texts.items()))}
    found = {key: lowered[key] for key in _KEYS if lowered.get(key, "").strip()}
    comment = lowered.get("comment", "").strip()
    if not found and comment.startswith("{"):
        return {"comment": comment}
    return found


def _of_png(data: bytes) -> dict[str, str]:
    try:
        found = _wanted(read_texts(data, 0, len(data)))
    except InvalidAsset:
        found = dict(_comf_chunks(data))
        if not found:
            raise
        return found
    return _wanted(dict(_comf_chunks(data))) | found


def _comf_chunks(data: bytes) -> Iterator[tuple[str, str]]:
    """Keyword and text of the chunks that animated PNGs have: `key NUL json`."""
    place = len(SIGNATURE)
    while place + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, place)
        if kind == b"comf":
            key, _, text = data[place + 8 : place + 8 + size].partition(b"\x00")
            yield key.decode("latin-1"), text.decode("utf-8", "replace")
        place += size + 12


def _of_webp(data: bytes) -> dict[str, str]:
    place = 12
    while place + 8 <= len(data):
        kind, size = struct.unpack_from("<4sI", data, place)
        if kind == b"EXIF":
            return _of_exif(data[place + 8 : place + 8 + size])
        place += 8 + size + size % 2
    return {}


def _of_jpeg(data: bytes) -> dict[str, str]:
    place = 2
    while place + 4 <= len(data) and data[place] == _JPEG_MARKER:
        marker, size = data[place + 1], struct.unpack_from(">H", data, place + 2)[0]
        body = data[place + 4 : place + 2 + size]
        if marker == _APP1 and body.startswith(_EXIF_HEAD):
            return _of_exif(body)
        if size < _LENGTH_BYTES:
            break
        place += 2 + size
    return {}


def _of_avif(data: bytes) -> dict[str, str]:
    try:
        with PillowImage.open(io.BytesIO(data)) as picture:
            body = picture.info.get("exif", b"")
    except (UnidentifiedImageError, PillowImage.DecompressionBombError) as error:
        raise ValueError(str(error)) from error
    return _of_exif(body) if isinstance(body, bytes) else {}


def _of_exif(body: bytes) -> dict[str, str]:
    """Texts `key:{json}` in any tag, in any order, and JSON in the comment of the user."""
    texts: dict[str, str] = {}
    if not body:
        return texts
    for value in _exif_values(body.removeprefix(_EXIF_HEAD)):
        text = _comment(value)
        key, mark, rest = text.partition(":")
        if mark and key.strip().lower() in _KEYS:
            texts.setdefault(key.strip().lower(), rest)
        elif text.lstrip().startswith("{"):
            texts["comment"] = text
    return _wanted(texts)


def _exif_values(body: bytes) -> Iterator[bytes]:
    """The bytes of all texts in the first directory and its EXIF part.

    Format: TIFF 6.0, section 2 (entries of 12 bytes: tag, type, count, value or its place).
    """
    order = "<" if body.startswith(b"II") else ">"
    (first,) = struct.unpack_from(f"{order}I", body, 4)
    places = [first]
    for place in places:
        (count,) = struct.unpack_from(f"{order}H", body, place)
        for entry in range(place + 2, place + 2 + 12 * count, 12):
            tag, kind, size, value = struct.unpack_from(f"{order}HHII", body, entry)
            if tag == _EXIF_PART and len(places) == 1:
                places.append(value)
            elif kind in _TEXT_TYPES:
                start = value if size > _BYTES_INSIDE else entry + 8
                yield body[start : start + size]


def _comment(value: bytes) -> str:
    """The text of an EXIF value; in comments eight bytes before it name the encoding."""
    head, body = value[:8], value[8:]
    if head == b"UNICODE\x00":
        return body.decode("utf-16-be" if body[:1] == b"\x00" else "utf-16-le", "replace")
    text = body if head in {b"ASCII\x00\x00\x00", bytes(8)} else value
    return text.decode("utf-8", "replace").rstrip("\x00")


def _of_container(data: bytes) -> dict[str, str]:
    """Tags of the container and of its streams; nothing is decoded."""
    stream = io.BytesIO(data)
    try:
        with av.open(stream, metadata_errors="replace", options=SAFE_OPTIONS) as container:
            parts = [container.metadata, *(part.metadata for part in container.streams)]
            return _wanted(dict(chain.from_iterable(reversed([[*p.items()] for p in parts]))))
    except av.FFmpegError as error:
        raise ValueError(error.strerror) from error


def _of_glb(data: bytes) -> dict[str, str]:
    (size,) = struct.unpack_from("<I", data, 12)
    document = json.loads(data[_GLB_HEAD_BYTES : _GLB_HEAD_BYTES + size])
    return _texts_of(document["asset"].get("extras", {}))


def _of_safetensors(data: bytes) -> dict[str, str]:
    (size,) = struct.unpack_from("<Q", data, 0)
    document = json.loads(data[8 : 8 + min(size, _MAX_HEADER_BYTES)])
    return _texts_of(document.get("__metadata__", {}))


def _texts_of(entries: Mapping[str, Any]) -> dict[str, str]:
    """The entries as texts; some writers put the object itself there."""
    return _wanted({k: v if isinstance(v, str) else json.dumps(v) for k, v in entries.items()})


def _is_avif(data: bytes) -> bool:
    return data[4:12] in {b"ftypavif", b"ftypavis"}


def _is_container(data: bytes) -> bool:
    starts = (b"\x1a\x45\xdf\xa3", b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")
    riff = data[:4] == b"RIFF" and data[8:12] in {b"WAVE", b"AVI "}
    return data[4:8] in {b"ftyp", b"moov"} or data.startswith(starts) or riff


_READERS: Final[
    tuple[tuple[str, Callable[[bytes], bool], Callable[[bytes], dict[str, str]]], ...]
] = (
    ("PNG", lambda data: data.startswith(SIGNATURE), _of_png),
    ("WebP", lambda data: data[:4] == b"RIFF" and data[8:12] == b"WEBP", _of_webp),
    ("JPEG", lambda data: data.startswith(b"\xff\xd8\xff"), _of_jpeg),
    ("AVIF", _is_avif, _of_avif),
    ("GLB", lambda data: data.startswith(b"glTF"), _of_glb),
    ("safetensors", lambda data: data[8:10] == b'{"' and data[3:8] == bytes(5), _of_safetensors),
    ("video or sound", _is_container, _of_container),
)
