"""Kinds of media, their file extensions and their MIME types: one table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MediaKind(StrEnum):
    """The kinds a take or an asset can have on the wire."""

    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"


@dataclass(frozen=True, slots=True)
class MediaFormat:
    """One file format the server stores and serves."""

    extension: str
    media_type: str
    kind: MediaKind


FORMATS: tuple[MediaFormat, ...] = (
    MediaFormat("png", "image/png", MediaKind.IMAGE),
    MediaFormat("jpg", "image/jpeg", MediaKind.IMAGE),
    MediaFormat("webp", "image/webp", MediaKind.IMAGE),
    MediaFormat("gif", "image/gif", MediaKind.IMAGE),
    MediaFormat("bmp", "image/bmp", MediaKind.IMAGE),
    MediaFormat("tiff", "image/tiff", MediaKind.IMAGE),
    MediaFormat("avif", "image/avif", MediaKind.IMAGE),
    MediaFormat("mp4", "video/mp4", MediaKind.VIDEO),
    MediaFormat("webm", "video/webm", MediaKind.VIDEO),
    MediaFormat("mkv", "video/x-matroska", MediaKind.VIDEO),
    MediaFormat("mov", "video/quicktime", MediaKind.VIDEO),
    MediaFormat("avi", "video/x-msvideo", MediaKind.VIDEO),
    MediaFormat("wav", "audio/wav", MediaKind.AUDIO),
    MediaFormat("flac", "audio/flac", MediaKind.AUDIO),
    MediaFormat("mp3", "audio/mpeg", MediaKind.AUDIO),
    MediaFormat("ogg", "audio/ogg", MediaKind.AUDIO),
    MediaFormat("m4a", "audio/mp4", MediaKind.AUDIO),
)


def format_of(extension: str) -> MediaFormat | None:
    """The format with this extension (with or without the dot, any case)."""
    wanted = extension.lower().lstrip(".")
    return next((entry for entry in FORMATS if entry.extension == wanted), None)


def media_type_of(extension: str) -> str:
    """The MIME type to serve a stored file with."""
    known = format_of(extension)
    return known.media_type if known else "application/octet-stream"
