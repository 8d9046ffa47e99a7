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
from inline_core.media.streams import SAFE_OPTIONS, picture_stream, quarter_turns

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
    """Identify a picture, video or sound by content, decoding one frame of a video at most.

    Raises: InvalidAsset, naming `name`, for anything else or over `max_pixels`.
    """
    info = _probe_image(path, max_pixels, name)
    if info is None:
        info = _probe_container(path, max_pixels, name)
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


def _probe_container(path: Path, max_pixels: int, name: str) -> MediaInfo | None:
    try:
        with av.open(str(path), metadata_errors="ignore", options=SAFE_OPTIONS) as container:
            return _container_info(container, max_pixels, name)
    except (av.FFmpegError, OSError, ValueError):
        return None


def _container_info(
    container: av.container.InputContainer, max_pixels: int, name: str
) -> MediaInfo | None:
    extension = next((ext for part, ext in _CONTAINER_NAMES if part in container.format.name), None)
    video = picture_stream(container)
    audio = next(iter(container.streams.audio), None)
    if extension == "mp4" and video is None:
        extension = "m4a"
    known = format_of(extension) if extension else None
    if known is None or (video is None and audio is None):
        return None
    duration = container.duration / av.time_base if container.duration else None
    rate = audio.rate if audio else None
    channels = audio.channels if audio else None
    if known.kind is MediaKind.AUDIO or video is None:
        return MediaInfo(known, duration_s=duration, sample_rate_hz=rate, channels=channels)
    check_pixels((video.width, video.height), max_pixels, name)
    fps = video.average_rate or video.guessed_rate
    width, height = _shown_size(container, video)
    return MediaInfo(known, width, height, duration, float(fps) if fps else None, rate, channels)


def _shown_size(container: av.container.InputContainer, video: av.VideoStream) -> tuple[int, int]:
    """Width and height after the rotation the file asks for, which only a decoded frame tells."""
    try:
        frame = next(container.decode(video), None)
    except av.FFmpegError:  # whoever reads the frames says what is wrong with them
        frame = None
    if frame is not None and quarter_turns(frame) % 2:
        return video.height, video.width
    return video.width, video.height
