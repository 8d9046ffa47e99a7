"""What a file really is, read from its content; what clients say of it is not trusted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import av
from PIL import Image as PillowImage
from PIL import UnidentifiedImageError

from inline_core.errors import InvalidAsset
from inline_core.media.kinds import FORMATS, MediaFormat, MediaKind, format_of
from inline_core.media.png import check_pixels

_PILLOW_NAMES = {
    "PNG": "png",
    "JPEG": "jpg",
    "MPO": "jpg",
    "WEBP": "webp",
    "GIF": "gif",
    "BMP": "bmp",
    "TIFF": "tiff",
    "AVIF": "avif",
}
_CONTAINER_NAMES = (
    ("wav", "wav"),
    ("flac", "flac"),
    ("mp3", "mp3"),
    ("ogg", "ogg"),
    ("avi", "avi"),
    ("matroska,webm", "mkv"),
    ("mov,mp4", "mp4"),
)


@dataclass(frozen=True, slots=True)
class MediaInfo:
    """What a media file is; sizes in pixels, times in seconds, None where it does not apply."""

    format: MediaFormat
    width: int | None = None
    height: int | None = None
    duration_s: float | None = None
    fps: float | None = None
    sample_rate_hz: int | None = None
    channels: int | None = None


def probe(path: Path, *, max_pixels: int, name: str) -> MediaInfo:
    """Identify a picture, video or sound by content, without decoding it.

    Raises: InvalidAsset, naming `name`, for anything else or over `max_pixels`.
    """
    info = _probe_image(path, max_pixels, name)
    if info is None:
        info = _probe_container(path)
    if info is None:
        known = ", ".join(entry.extension for entry in FORMATS)
        message = f"{name} is not a picture, video or sound that can be read (known: {known})."
        raise InvalidAsset(message)
    return info


def _probe_image(path: Path, max_pixels: int, name: str) -> MediaInfo | None:
    try:
        with PillowImage.open(path) as picture:
            extension = _PILLOW_NAMES.get(picture.format or "")
            size = picture.size
    except PillowImage.DecompressionBombError as error:
        message = f"{name} has more pixels than the server decodes (cap: {max_pixels})."
        raise InvalidAsset(message) from error
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError):
        return None
    known = format_of(extension) if extension else None
    if known is None:
        return None
    check_pixels(size, max_pixels, name)
    return MediaInfo(known, size[0], size[1])


def _probe_container(path: Path) -> MediaInfo | None:
    try:
        with av.open(str(path), metadata_errors="ignore") as container:
            return _container_info(container)
    except (av.FFmpegError, OSError, ValueError):
        return None


def _container_info(container: av.container.InputContainer) -> MediaInfo | None:
    extension = next((ext for name, ext in _CONTAINER_NAMES if name in container.format.name), None)
    video = next(iter(container.streams.video), None)
    audio = next(iter(container.streams.audio), None)
    if extension == "mp4" and video is None:
        extension = "m4a"
    known = format_of(extension) if extension else None
    if known is None or (video is None and audio is None):
        return None
    if known.kind is MediaKind.AUDIO:
        video = None
    duration = container.duration / av.time_base if container.duration else None
    return MediaInfo(
        known,
        video.width if video else None,
        video.height if video else None,
        duration,
        float(video.average_rate) if video and video.average_rate else None,
        audio.rate if audio else None,
        audio.channels if audio else None,
    )
