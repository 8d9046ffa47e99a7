"""Values of nodes as files of takes: png, mp4 with its poster, wav or flac; and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from inline_core.engine.wiring import media_of
from inline_core.media.audio import check_waveform, clipped_samples, write_flac, write_wav
from inline_core.media.file_texts import recipe_line
from inline_core.media.kinds import MediaKind
from inline_core.media.png import encode_png
from inline_core.media.rates import frame_rate
from inline_core.media.values import Clip, Image, MediaFile, Waveform
from inline_core.media.video import aac_rate, check_clip, encode_mp4, even_size, poster_of
from inline_core.takes.files import ContentFiles, disk_errors
from inline_core.takes.take import POSTER_EXTENSION, Take

AudioFormat = Literal["wav", "wav-float", "flac"]
Check = Callable[[], None]

_SHORTER_S: Final = 0.05
"""A sound that ends this little before the pictures is no news."""


@dataclass(frozen=True, slots=True)
class StoredTake:
    """A written file, and what a take says about it; `facts` are fields of `Take`."""

    kind: MediaKind
    extension: str
    sha256: str
    size_bytes: int
    facts: Mapping[str, Any]


def store(
    files: ContentFiles,
    value: Image | Clip | Waveform,
    recipe: Mapping[str, Any] | None,
    audio_format: AudioFormat,
    check: Check,
) -> StoredTake:
    """Write a value as the file of a take; it and a poster stay pinned (see `ContentFiles.write`).

    Raises: DiskFull, EncodingFailed, NotFinite, InvalidParam, and whatever `check` raises.
    """
    if isinstance(value, Image):
        data = encode_png(value, recipe)
        facts = {"width": value.width, "height": value.height}
        return StoredTake(MediaKind.IMAGE, "png", files.write(data, "png"), len(data), facts)
    comment = None if recipe is None else recipe_line(recipe)
    with disk_errors("a take"):
        if isinstance(value, Clip):
            return _store_video(files, value, comment, check)
        return _store_sound(files, value, comment, audio_format, check)


def _store_video(files: ContentFiles, clip: Clip, comment: str | None, check: Check) -> StoredTake:
    with files.temporary() as path:
        encode_mp4(clip, path, comment=comment, check=check)
        sha256, size = files.adopt(path, "mp4")
    try:
        poster = files.write(poster_of(clip, check=check), POSTER_EXTENSION)
    except BaseException:
        files.release(sha256)
        raise
    rate = frame_rate(clip.fps)
    width, height = even_size(clip.width, clip.height)
    facts = {
        "width": width,
        "height": height,
        "duration_s": float(clip.frame_count / rate),
        "fps": float(rate),
        "sample_rate_hz": None if clip.sound is None else aac_rate(clip.sound.sample_rate_hz),
        "has_sound": clip.sound is not None,
        "poster": poster,
    }
    return StoredTake(MediaKind.VIDEO, "mp4", sha256, size, facts)


def _store_sound(
    files: ContentFiles,
    sound: Waveform,
    comment: str | None,
    audio_format: AudioFormat,
    check: Check,
) -> StoredTake:
    extension = "flac" if audio_format == "flac" else "wav"
    with files.temporary() as path:
        if audio_format == "flac":
            write_flac(sound, path, comment=comment, check=check)
        else:
            as_float = audio_format == "wav-float"
            write_wav(sound, path, comment=comment, as_float=as_float, check=check)
        sha256, size = files.adopt(path, extension)
    facts = {"duration_s": sound.duration_s, "sample_rate_hz": sound.sample_rate_hz}
    return StoredTake(MediaKind.AUDIO, extension, sha256, size, facts)


def release(files: ContentFiles, takes: Sequence[Take]) -> None:
    """The rows of these takes are stored, or never will be."""
    for take in takes:
        files.release(take.sha256)
        if take.poster is not None:
            files.release(take.poster)


def notes_on(outputs: Mapping[str, Any], audio_format: AudioFormat) -> list[str]:
    """What people should know of how videos and sounds among the outputs will be stored.

    Raises: InvalidParam, NotFinite for what cannot be stored at all.
    """
    notes: list[str] = []
    for value in outputs.values():
        for part in media_of(value):
            if isinstance(part, Clip):
                check_clip(part)
                notes += _notes_on_video(part)
            elif isinstance(part, Waveform):
                check_waveform(part)
                notes += [] if audio_format == "wav-float" else _notes_on_sound(part)
    return notes


def _notes_on_video(clip: Clip) -> list[str]:
    notes: list[str] = []
    width, height = even_size(clip.width, clip.height)
    if (width, height) != (clip.width, clip.height):
        notes.append(
            f"The video is {clip.width}x{clip.height}; mp4 (h264) needs even sides, so its last "
            f"column or row was repeated: it is stored as {width}x{height}."
        )
    sound = clip.sound
    if sound is None:
        return notes
    over = sound.duration_s - clip.duration_s
    if abs(over) > _SHORTER_S:
        how = "was cut at their end" if over > 0 else "goes on in silence"
        notes.append(
            f"The sound lasts {sound.duration_s:.2f} s and the pictures {clip.duration_s:.2f} s; "
            f"in the mp4 the sound {how}."
        )
    if aac_rate(sound.sample_rate_hz) != sound.sample_rate_hz:
        notes.append(
            f"The sound has {sound.sample_rate_hz} samples per second, which AAC has not; in the "
            f"mp4 it has {aac_rate(sound.sample_rate_hz)}."
        )
    return notes


def _notes_on_sound(sound: Waveform) -> list[str]:
    clipped = clipped_samples(sound)
    if not clipped:
        return []
    note = (
        f"{clipped} of {sound.samples.size} samples of the sound are louder than full scale and "
        "were cut off there; make it quieter with an audio/gain node."
    )
    return [note]


def values_of(takes: Sequence[Take], files: ContentFiles) -> dict[str, object]:
    """Port -> file of the videos and sounds among the takes of a node (a tuple of several).

    A video is stored with loss (h264), so what the next node reads is always the take: the result
    is the same whether the take was made just now or in an earlier run, and what one sees is what
    is worked on.
    """
    by_port: dict[str, list[MediaFile]] = {}
    for take in takes:
        if take.kind is not MediaKind.IMAGE:
            by_port.setdefault(take.port, []).append(_file_of(take, files))
    return {port: found[0] if len(found) == 1 else tuple(found) for port, found in by_port.items()}


def _file_of(take: Take, files: ContentFiles) -> MediaFile:
    return MediaFile(
        take.kind.value,
        files.path(take.sha256, take.extension),
        take.sha256,
        take.duration_s,
        take.width,
        take.height,
        take.fps,
        take.sample_rate_hz,
        provenance=dict(take.provenance),
    )
