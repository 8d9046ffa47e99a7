"""Videos to mp4 files (h264 and AAC), frame by frame; and the still picture that stands for one."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image as PillowImage

from inline_core.errors import InvalidParam
from inline_core.media.audio import check_waveform, sound_blocks
from inline_core.media.ffmpeg import EXACT, run_ffmpeg
from inline_core.media.file_texts import ffmetadata
from inline_core.media.rates import frame_rate
from inline_core.media.values import Clip

if TYPE_CHECKING:
    from numpy.typing import NDArray

POSTER_SIDE: Final = 512
THREADS: Final = 4
"""x264 gives equal bytes for an equal number of threads, so it is not that of the machine."""

_CHANNELS: Final = 3
_DARK: Final = 12.0
_POSTER_QUALITY: Final = 85
_LOOK_EVERY: Final = 8
_ROUND_AUDIO_HZ: Final = 48_000
_AAC_RATES_HZ: Final = frozenset(
    {96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000}
)
# Chroma lies to the left, where players take it to be (ITU-T H.264, E.2.1); ffmpeg's default is the
# middle, which shifts colours by half a pixel.
_TO_BT709: Final = (
    "scale=in_range=pc:out_range=tv:out_color_matrix=bt709:out_chroma_loc=left"
    ":flags=bicubic+accurate_rnd+full_chroma_int+bitexact,format=yuv420p,"
    "setparams=range=tv:color_primaries=bt709:color_trc=bt709:colorspace=bt709"
    ":chroma_location=left"
)
_H264: Final = (
    *("-c:v", "libx264", "-preset", "fast", "-crf", "14", "-threads:v", str(THREADS)),
    *("-x264-params", "cpu-independent=1"),
    *("-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709"),
    *("-color_range", "tv"),
)
_MP4: Final = ("-movflags", "+faststart", "-f", "mp4")


def encode_mp4(
    clip: Clip,
    target: Path,
    *,
    comment: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Write a clip to `target` as mp4: h264 4:2:0 in BT.709 limited range, AAC where it has sound.

    Frames go to ffmpeg one by one, so nothing the size of the clip is made.  An odd width or height
    grows by one: the last column or row is repeated (see `even_size`).  The pictures rule: a longer
    sound is cut at their end, a shorter one goes on in silence.  `comment` becomes the comment tag.
    Equal clips give equal bytes.  `check` is asked for every frame; whatever it raises ends ffmpeg
    and leaves no file.  Blocks; any thread.
    Raises: InvalidParam (no frames, a wrong shape or rate), NotFinite (in the sound),
    EncodingFailed, DiskFull, RuntimeMissing.
    """
    check_clip(clip)
    rate = frame_rate(clip.fps)
    width, height = even_size(clip.width, clip.height)
    sound_path = target.with_name(f"{target.name}.sound")
    facts_path = target.with_name(f"{target.name}.facts")
    arguments = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    arguments += ["-r", f"{rate.numerator}/{rate.denominator}", "-i", "pipe:0"]
    done = False
    try:
        if clip.sound is not None:
            length = max(1, round(clip.frame_count / rate * clip.sound.sample_rate_hz))
            _write_sound(clip, length, sound_path, check)
            arguments += ["-f", "f32le", "-ar", str(clip.sound.sample_rate_hz)]
            arguments += ["-ac", str(clip.sound.channels), "-i", str(sound_path)]
        if comment is not None:
            facts_path.write_bytes(ffmetadata(comment))
            arguments += ["-f", "ffmetadata", "-i", str(facts_path)]
        arguments += _mapping(clip, described=comment is not None)
        arguments += ["-vf", _TO_BT709, *_H264, *EXACT, *_MP4, str(target)]
        run_ffmpeg(arguments, _even_frames(clip), check, "the video")
        done = True
    finally:
        sound_path.unlink(missing_ok=True)
        facts_path.unlink(missing_ok=True)
        if not done:
            target.unlink(missing_ok=True)


def even_size(width: int, height: int) -> tuple[int, int]:
    """The size that h264 with 4:2:0 chroma can store: odd sides are one larger."""
    return width + width % 2, height + height % 2


def aac_rate(sample_rate_hz: int) -> int:
    """The sample rate that a sound gets in an mp4: its own, or 48 kHz where AAC has no such."""
    return sample_rate_hz if sample_rate_hz in _AAC_RATES_HZ else _ROUND_AUDIO_HZ


def poster_of(clip: Clip, *, check: Callable[[], None] = lambda: None) -> bytes:
    """The first frame that is not black (else the brightest) as JPEG, longest side 512 at most.

    Raises: InvalidParam, NotFinite (see `check_clip`).
    """
    check_clip(clip)
    best, brightness = 0, -1.0
    for index in range(clip.frame_count):
        check()
        seen = clip.frames[index, ::_LOOK_EVERY, ::_LOOK_EVERY]
        mean = float(seen.mean())
        if mean > brightness:
            best, brightness = index, mean
        if mean > _DARK:
            break
    picture = PillowImage.fromarray(np.ascontiguousarray(clip.frames[best]))
    picture.thumbnail((POSTER_SIDE, POSTER_SIDE), PillowImage.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=_POSTER_QUALITY)
    return file.getvalue()


def check_clip(clip: Clip) -> None:
    """Refuse what is no video.  Raises: InvalidParam, NotFinite (in its sound)."""
    frame_rate(clip.fps)
    if clip.sound is not None:
        check_waveform(clip.sound)
    shape, kind = clip.frames.shape, clip.frames.dtype
    if len(shape) != 4 or shape[3] != _CHANNELS or 0 in shape or kind != np.uint8:  # noqa: PLR2004
        message = (
            "A video needs at least one frame, as uint8 of shape (n, height, width, 3); "
            f"these are {kind} of shape {tuple(shape)}."
        )
        raise InvalidParam(message, param="frames")


def _mapping(clip: Clip, *, described: bool) -> list[str]:
    """Which input gives what, and how the sound is written."""
    sound = clip.sound
    arguments = ["-map", "0:v:0"]
    if sound is not None:
        arguments += ["-map", "1:a:0", "-c:a", "aac", "-b:a", f"{96 * max(2, sound.channels)}k"]
        arguments += ["-ar", str(aac_rate(sound.sample_rate_hz))]
    facts = str(1 if sound is None else 2) if described else "-1"
    return [*arguments, "-map_metadata", facts]


def _even_frames(clip: Clip) -> Iterator[memoryview]:
    """The bytes of each frame, its last row and column repeated where a side is odd."""
    right, below = clip.width % 2, clip.height % 2
    for index in range(clip.frame_count):
        frame: NDArray[np.uint8] = clip.frames[index]
        if right or below:
            frame = np.pad(frame, ((0, below), (0, right), (0, 0)), mode="edge")
        yield np.ascontiguousarray(frame).data.cast("B")


def _write_sound(clip: Clip, length: int, path: Path, check: Callable[[], None]) -> None:
    """The sound as raw float32, exactly `length` samples long."""
    if clip.sound is None:
        return
    missing = length
    with path.open("xb") as file:
        for block in sound_blocks(clip.sound):
            check()
            part = block[:missing]
            file.write(np.ascontiguousarray(part, "<f4").data.cast("B"))
            missing -= len(part)
            if missing <= 0:
                return
        silence = bytes(4 * clip.sound.channels * min(missing, clip.sound.sample_rate_hz))
        while missing > 0:
            check()
            part_bytes = 4 * clip.sound.channels * min(missing, clip.sound.sample_rate_hz)
            file.write(silence[:part_bytes])
            missing -= part_bytes // (4 * clip.sound.channels)
