"""Decoding of video and sound files with PyAV: guarded, in order, with times from the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import chain
from typing import Any, Final

import av
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.stream import Disposition
from av.video.stream import VideoStream

from inline_core.errors import InvalidAsset
from inline_core.media.values import MediaFile

Check = Callable[[], None]

SAFE_OPTIONS: Final = {
    "protocol_whitelist": "file",
    "format_whitelist": "wav,flac,mp3,ogg,avi,matroska,webm,mov,mp4",
}
"""No playlists and the like, whose entries would be fetched from anywhere."""

_SEEK_FROM_S: Final = 2
_PREROLL_S: Final = Fraction(1, 5)
"""Sound is decoded from a little earlier, since a coded block needs the one before it."""

_MISSING_S: Final = Fraction(1, 2)
"""A stream that ends this much before its own length was cut off."""


def picture_stream(container: InputContainer) -> VideoStream | None:
    """The first stream of moving pictures; covers of music files are none."""
    cover = Disposition.attached_pic
    found = (stream for stream in container.streams.video if not stream.disposition & cover)
    return next(found, None)


def quarter_turns(frame: av.VideoFrame) -> int:
    """How often the frame must be turned by 90 degrees counter-clockwise to be shown upright."""
    return round(frame.rotation / 90) % 4


@contextmanager
def opened(file: MediaFile) -> Iterator[InputContainer]:
    """The container of a file.  Raises: InvalidAsset, naming the file, for whatever goes wrong."""
    try:
        path = str(file.path)
        with av.open(path, metadata_errors="ignore", options=SAFE_OPTIONS) as container:
            yield container
    except (av.FFmpegError, OSError, LookupError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        message = (
            f"The {file.kind} {file.path.name!r} cannot be read: it is damaged, cut off, or gone "
            f"({why})."
        )
        raise InvalidAsset(message) from error


def timed_frames(
    file: MediaFile, start_s: Fraction, check: Check
) -> Iterator[tuple[Fraction, av.VideoFrame]]:
    """Frames in the order of showing, with their time after the first one of the file in seconds.

    It begins at or before `start_s`.  Raises: InvalidAsset.
    """
    with opened(file) as container:
        stream = picture_stream(container)
        if stream is None:
            held = "only sound" if container.streams.audio else "no pictures"
            message = f"The file {file.path.name!r} has {held}, and a video is needed here."
            raise InvalidAsset(message)
        stream.thread_type = "AUTO"
        origin = _start_of(stream)
        yield from _timed(file, container, stream, origin, start_s, check)


def timed_sounds(
    file: MediaFile, start_s: Fraction, check: Check
) -> Iterator[tuple[Fraction, av.AudioFrame]]:
    """Blocks of the first sound stream, with their time in seconds; nothing if there is no sound.

    Times count from the first picture of the file, or from the first block where it has none.
    Raises: InvalidAsset.
    """
    with opened(file) as container:
        stream = next(iter(container.streams.audio), None)
        if stream is None:
            return
        pictures = picture_stream(container)
        origin = _start_of(stream if pictures is None else pictures)
        yield from _timed(file, container, stream, origin, start_s - _PREROLL_S, check)


def _start_of(stream: VideoStream | AudioStream) -> Fraction:
    return Fraction((stream.start_time or 0) * (stream.time_base or 0))


def _timed(
    file: MediaFile,
    container: InputContainer,
    stream: Any,
    origin: Fraction,
    start_s: Fraction,
    check: Check,
) -> Iterator[tuple[Fraction, Any]]:
    _check_whole(file, stream)
    declared = _declared_end(stream, origin)
    if declared is not None and start_s >= declared:
        return
    frames = _decoded(file, container, stream, origin, check)
    if start_s > _SEEK_FROM_S and stream.time_base:
        container.seek(int((origin + start_s) / stream.time_base), stream=stream)
        first = next(frames, None)
        if first is not None and first[0] <= start_s:
            frames = chain([first], frames)
        else:  # the place found was too late: this file has no usable index
            container.seek(stream.start_time or 0, stream=stream)
            frames = _decoded(file, container, stream, origin, check)
    yield from frames


def _decoded(
    file: MediaFile, container: InputContainer, stream: Any, origin: Fraction, check: Check
) -> Iterator[tuple[Fraction, Any]]:
    """Everything from where the container stands to the end."""
    end = Fraction(0)
    for frame in container.decode(stream):
        check()
        if frame.is_corrupt:
            message = f"The {file.kind} {file.path.name!r} is damaged in the middle."
            raise InvalidAsset(message)
        time = end if frame.pts is None else frame.pts * frame.time_base - origin
        end = time + _length(frame, stream)
        yield time, frame
    declared = _declared_end(stream, origin)
    if declared is not None and end + _MISSING_S < declared:
        message = (
            f"The {file.kind} {file.path.name!r} is cut off: it ends after {float(end):.1f} of "
            f"{float(declared):.1f} seconds."
        )
        raise InvalidAsset(message)


def _declared_end(stream: Any, origin: Fraction) -> Fraction | None:
    """Where a stream ends by its own account, in seconds after `origin`."""
    if not stream.duration or not stream.time_base:
        return None
    return Fraction(_start_of(stream) - origin + stream.duration * stream.time_base)


def _length(frame: Any, stream: Any) -> Fraction:
    if isinstance(frame, av.AudioFrame):
        return Fraction(frame.samples, frame.sample_rate)
    if frame.duration and frame.time_base:
        return Fraction(frame.duration * frame.time_base)
    return 1 / Fraction(stream.average_rate or stream.guessed_rate or 25)


def _check_whole(file: MediaFile, stream: Any) -> None:
    """Refuse a file whose own index points behind its end."""
    size = file.path.stat().st_size
    last = max((entry.pos + entry.size for entry in stream.index_entries), default=0)
    if last > size:
        message = (
            f"The {file.kind} {file.path.name!r} is cut off: {size} bytes are here, and its index "
            f"points at byte {last}."
        )
        raise InvalidAsset(message)
