"""Videos and sounds out of files, as values: at a constant frame rate, upright, within a cap."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import av
import numpy as np
from av.audio.resampler import AudioResampler
from av.video.reformatter import Colorspace, VideoReformatter

from inline_core.errors import InvalidAsset, InvalidParam
from inline_core.media.rates import MAX_FPS, plain_rate
from inline_core.media.streams import Check, quarter_turns, timed_frames, timed_sounds
from inline_core.media.values import Clip, MediaFile, Waveform

if TYPE_CHECKING:
    from numpy.typing import NDArray

READ_LIMIT_BYTES: Final = 4 * 1024**3
"""Most bytes of decoded frames (or samples) that are held at once, unless the caller says so."""

_HALF: Final = Fraction(1, 2)
_EXACT_COLOURS: Final = 0x4 | 0x2000 | 0x40000
"""libswscale: bicubic, full chroma, accurate rounding.  Its fast way repeats colours in pairs of
pixels; on smooth pictures that is 33 dB instead of 50."""

_UNKNOWN_COLOURS: Final = 2
_HD_LINES: Final = 720
_GUESSED_FRAMES: Final = 64


def _never() -> None:
    """Stand for "cannot be cancelled"."""


def clip_of(value: object, *, limit_bytes: int = READ_LIMIT_BYTES, check: Check = _never) -> Clip:
    """What came on a video port as a clip; a file is read whole (see `read_clip`).

    Raises: InvalidAsset, also if it is no video or over the cap.
    """
    if isinstance(value, Clip):
        return value
    if isinstance(value, MediaFile) and value.kind == "video":
        return read_clip(value, limit_bytes=limit_bytes, check=check)
    message = f"A video is needed here, and {_said(value)} came."
    raise InvalidAsset(message)


def waveform_of(
    value: object, *, limit_bytes: int = READ_LIMIT_BYTES, check: Check = _never
) -> Waveform:
    """What came on an audio port as a waveform; a file is read whole (see `read_waveform`).

    Raises: InvalidAsset, also if it is no sound (a video without any gives none) or over the cap.
    """
    if isinstance(value, Waveform):
        return value
    if isinstance(value, MediaFile) and value.kind == "audio":
        return read_waveform(value, limit_bytes=limit_bytes, check=check)
    message = f"A sound is needed here, and {_said(value)} came."
    raise InvalidAsset(message)


def _said(value: object) -> str:
    if value is None:
        return "none (a video without sound gives none)"
    if isinstance(value, MediaFile):
        return f"the {value.kind} {value.path.name!r}"
    if isinstance(value, tuple | list):
        return f"a batch of {len(value)}"
    return f"a value of type {type(value).__name__}"


def rate_of(file: MediaFile) -> Fraction:
    """The frame rate of a video file.  Raises: InvalidAsset if it names no usable one."""
    if file.fps is None or not 0 < file.fps <= MAX_FPS:
        message = f"The video {file.path.name!r} has no usable frame rate (it says {file.fps})."
        raise InvalidAsset(message)
    return plain_rate(file.fps)


def read_frames(
    file: MediaFile,
    *,
    start_s: float = 0.0,
    max_frames: int | None = None,
    fps: float | None = None,
    check: Check = _never,
) -> Iterator[NDArray[np.uint8]]:
    """Frames (height, width, 3) in sRGB from `start_s` on, one at a time; none behind the end.

    They come at a constant rate, the file's own unless `fps` says another: where a file has pauses
    between frames the last one is held, where it has more the later one wins.  A rotation that the
    file asks for is applied.  Pixels that are not square stay as they are stored.
    Raises: InvalidAsset (damaged, cut off, only sound, no frame rate), and what `check` raises.
    """
    rate = rate_of(file) if fps is None else plain_rate(fps)
    if max_frames is not None and max_frames <= 0:
        return
    reformatter = VideoReformatter()
    shown: tuple[Any, NDArray[np.uint8]] | None = None
    for count, frame in enumerate(_paced(file, rate, Fraction(start_s), check), 1):
        if shown is None or shown[0] is not frame:
            shown = frame, _pixels(frame, reformatter)
        yield shown[1]
        if count == max_frames:
            return


def _paced(file: MediaFile, rate: Fraction, start_s: Fraction, check: Check) -> Iterator[Any]:
    """The frame that is to be seen at `start_s`, one period later, and so on."""
    held, done, end = None, 0, Fraction(0)
    for time, frame in timed_frames(file, start_s, check):
        slot = math.floor((time - start_s) * rate + _HALF)
        while held is not None and done < slot:
            yield held
            done += 1
        length = (frame.duration or 0) * (frame.time_base or 0)
        held, end = frame, time + (length or 1 / rate)
    if held is None:
        return
    last = math.floor((end - start_s) * rate + _HALF)
    while done < last:
        yield held
        done += 1


def _pixels(frame: av.VideoFrame, reformatter: VideoReformatter) -> NDArray[np.uint8]:
    # Untagged colours are BT.601 in small videos and BT.709 from HD on, as players take them.
    hd = frame.colorspace == _UNKNOWN_COLOURS and frame.height >= _HD_LINES
    plain = reformatter.reformat(
        frame,
        format="rgb24",
        interpolation=_EXACT_COLOURS,
        src_colorspace=Colorspace.ITU709 if hd else None,
    )
    pixels: NDArray[np.uint8] = np.asarray(plain.to_ndarray(), np.uint8)  # (height, width, 3)
    turns = quarter_turns(frame)
    return np.ascontiguousarray(np.rot90(pixels, turns)) if turns else pixels


def read_clip(
    file: MediaFile,
    *,
    start_s: float = 0.0,
    max_frames: int | None = None,
    fps: float | None = None,
    limit_bytes: int = READ_LIMIT_BYTES,
    check: Check = _never,
) -> Clip:
    """A video file, or the part from `start_s` on, in memory; its sound ends with the pictures.

    See `read_frames` for rates and rotation.
    Raises: InvalidAsset (also if the frames are more than `limit_bytes`), InvalidParam if it ends
    before `start_s`, and what `check` raises.
    """
    rate = rate_of(file) if fps is None else plain_rate(fps)
    expected = _expected_frames(file, rate, start_s, max_frames)
    if file.width and file.height:
        _check_limit(file, expected, file.width * file.height * 3, limit_bytes, rate)
    frames = read_frames(file, start_s=start_s, max_frames=max_frames, fps=fps, check=check)
    taken: NDArray[np.uint8] | None = None
    count = 0
    for pixels in frames:
        if taken is None:
            taken = np.empty((max(1, expected), *pixels.shape), np.uint8)
        elif taken.shape[1:] != pixels.shape:
            message = f"The video {file.path.name!r} changes its size in the middle."
            raise InvalidAsset(message)
        if count == len(taken):
            _check_limit(file, count + 1, pixels.nbytes, limit_bytes, rate)
            taken = np.concatenate([taken, np.empty_like(taken[: count // 2 + 1])])
        taken[count] = pixels
        count += 1
    if taken is None:
        raise _nothing(file, start_s)
    sound = _sound(file, start_s, count / rate, None, limit_bytes, check)
    return Clip(taken[:count], float(rate), sound, dict(file.provenance))


def _expected_frames(
    file: MediaFile, rate: Fraction, start_s: float, max_frames: int | None
) -> int:
    """About how many frames will come (one more, rather than one fewer)."""
    if file.duration_s is None:
        return _GUESSED_FRAMES if max_frames is None else min(max_frames, _GUESSED_FRAMES)
    count = max(0, math.ceil((file.duration_s - start_s) * rate - 0.01))
    return count if max_frames is None else min(count, max_frames)


def _check_limit(
    file: MediaFile, count: int, frame_bytes: int, limit_bytes: int, rate: Fraction
) -> None:
    if count * frame_bytes > limit_bytes:
        fitting = limit_bytes // frame_bytes
        message = (
            f"The video {file.path.name!r} has {count} frames or more, "
            f"{count * frame_bytes / 1e9:.2f} GB decoded, and at most {limit_bytes / 1e9:.2f} GB "
            f"are read at once. Take {float(fitting / rate):.1f} seconds or less of it with a "
            "video/slice node, or use a smaller video."
        )
        raise InvalidAsset(message)


def _nothing(file: MediaFile, start_s: float) -> InvalidAsset | InvalidParam:
    if start_s > 0:
        message = f"The {file.kind} {file.path.name!r} ends before {start_s:g} s" + (
            f" (it lasts {file.duration_s:.3f} s)." if file.duration_s is not None else "."
        )
        return InvalidParam(message, param="start")
    what = "frames" if file.kind == "video" else "sound"
    message = f"The {file.kind} {file.path.name!r} has no {what}."
    return InvalidAsset(message)


def read_waveform(
    file: MediaFile,
    *,
    start_s: float = 0.0,
    duration_s: float | None = None,
    sample_rate_hz: int | None = None,
    limit_bytes: int = READ_LIMIT_BYTES,
    check: Check = _never,
) -> Waveform:
    """The sound of a file (of a video too), or a part of it, at its own rate or at another.

    Raises: InvalidAsset (damaged, no sound, over `limit_bytes`), InvalidParam if it ends before
    `start_s`, and what `check` raises.
    """
    wanted = None if duration_s is None else Fraction(duration_s)
    sound = _sound(file, start_s, wanted, sample_rate_hz, limit_bytes, check)
    if sound is None or (start_s > 0 and not sound.samples.shape[1]):
        over = file.duration_s is not None and file.duration_s <= start_s
        raise _nothing(file, start_s if sound is not None or over else 0.0)
    return sound


def _sound(
    file: MediaFile,
    start_s: float,
    duration_s: Fraction | None,
    sample_rate_hz: int | None,
    limit_bytes: int,
    check: Check,
) -> Waveform | None:
    """The sound of a part of a file; None if the file has none at all."""
    start = Fraction(start_s)
    blocks: list[NDArray[np.float32]] = []
    resampler: AudioResampler | None = None
    rate = wanted = placed = held = 0
    for time, frame in timed_sounds(file, start, check):
        if resampler is None:
            rate = sample_rate_hz or frame.sample_rate
            resampler = AudioResampler(format="fltp", rate=rate)
            placed = round((time - start) * rate)
            wanted = _last_sample(file, start, duration_s, rate)
        frame.pts = None
        for part in resampler.resample(frame):
            placed, held = _place(part.to_ndarray(), placed, blocks, held)
        if held > limit_bytes:
            message = (
                f"The sound of {file.path.name!r} takes more than {limit_bytes / 1e9:.2f} GB "
                "decoded. Take a part of it with an audio/trim node."
            )
            raise InvalidAsset(message)
        if placed >= wanted + rate:
            break
    if resampler is None:
        return None
    for part in resampler.resample(None):
        placed, held = _place(part.to_ndarray(), placed, blocks, held)
    samples = np.concatenate(blocks, axis=1) if blocks else np.zeros((1, 0), np.float32)
    return Waveform(np.ascontiguousarray(samples[:, :wanted]), rate, dict(file.provenance))


def _last_sample(file: MediaFile, start: Fraction, duration_s: Fraction | None, rate: int) -> int:
    """Where the wanted part ends at the latest; coded sounds end in padding that is no sound."""
    if duration_s is not None:
        return max(0, round(duration_s * rate))
    if file.duration_s is not None and file.path.suffix in {".mp4", ".m4a", ".mov"}:
        return max(0, round((Fraction(file.duration_s) - start) * rate))
    return 2**62


def _place(
    samples: Any, placed: int, blocks: list[NDArray[np.float32]], held: int
) -> tuple[int, int]:
    """Keep what is not before the start; silence fills what a late beginning leaves open."""
    if placed > 0 and not blocks:
        blocks.append(np.zeros((samples.shape[0], placed), np.float32))
        held += int(blocks[-1].nbytes)
    kept = samples[:, max(0, -placed) :]
    if kept.shape[1]:
        blocks.append(np.asarray(kept, np.float32))
        held += int(kept.nbytes)
    return placed + int(samples.shape[1]), held


def resampled(sound: Waveform, sample_rate_hz: int) -> Waveform:
    """A sound at another sample rate (libswresample), each channel by itself."""
    if sound.sample_rate_hz == sample_rate_hz:
        return sound
    channels: list[NDArray[np.float32]] = []
    for row in sound.samples:
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(row[None], np.float32), format="fltp", layout="mono"
        )
        frame.sample_rate = sound.sample_rate_hz
        resampler = AudioResampler(format="fltp", layout="mono", rate=sample_rate_hz)
        parts = [*resampler.resample(frame), *resampler.resample(None)]
        channels.append(np.concatenate([part.to_ndarray()[0] for part in parts]))
    samples = np.stack(channels).astype(np.float32)  # (channels, n)
    return Waveform(samples, sample_rate_hz, sound.provenance)
