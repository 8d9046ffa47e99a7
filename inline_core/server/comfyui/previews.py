"""Previews while sampling, in the binary forms of ComfyUI's socket."""

from __future__ import annotations

import io
import json
import struct
from typing import Any, Final

from PIL import Image

from inline_core.server.comfyui.narration import Narration
from inline_core.server.comfyui.record import PromptRecord

_HEADER: Final = struct.Struct(">I")
_PLAIN: Final = 1
_WITH_METADATA: Final = 4
_JPEG: Final = 1
_PNG: Final = 2
_OFF: Final = frozenset({"none", "default"})


def wants_previews(record: PromptRecord, *, metadata: bool) -> bool:
    """Whether a client is sent previews of a prompt.

    Simple clients take every binary message for a result, so without the feature flag previews are
    only for prompts that ask for them.
    """
    if metadata:
        return True
    method = record.extra_data.get("preview_method")
    return isinstance(method, str) and method not in _OFF


def preview_messages(frame: bytes, narration: Narration, *, metadata: bool) -> list[bytes]:
    """A preview frame of ours as a message; none if it is no picture that can be told."""
    (length,) = _HEADER.unpack_from(frame)
    header: dict[str, Any] = json.loads(frame[_HEADER.size : _HEADER.size + length])
    picture = _as_jpeg(frame[_HEADER.size + length :], header["mediaType"])
    if not metadata:
        return [_HEADER.pack(_PLAIN) + _HEADER.pack(_JPEG) + picture]
    told = {**narration.preview_node(header["nodeId"]), "image_type": "image/jpeg"}
    text = json.dumps(told).encode()
    return [_HEADER.pack(_WITH_METADATA) + _HEADER.pack(len(text)) + text + picture]


def picture_message(png: bytes) -> bytes:
    """A finished picture as a message."""
    return _HEADER.pack(_PLAIN) + _HEADER.pack(_PNG) + png


def _as_jpeg(data: bytes, media_type: str) -> bytes:
    """Moving previews become their first frame: the protocol knows only still ones."""
    if media_type == "image/jpeg":
        return data
    with Image.open(io.BytesIO(data)) as moving:
        buffer = io.BytesIO()
        moving.convert("RGB").save(buffer, "JPEG")
    return buffer.getvalue()
