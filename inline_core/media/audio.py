"""Sounds to files: wav (16-bit or float) and flac, with the recipe as a comment."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from inline_core.errors import EncodingFailed, InvalidParam, NotFinite
from inline_core.media.ffmpeg import EXACT, run_ffmpeg
from inline_core.media.file_texts import ffmetadata, info_chunk
from inline_core.media.values import Waveform

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK_SAMPLES: Final = 65_536
MAX_RATE_HZ: Final = 768_000
_MAX_FLAC_CHANNELS: Final = 8
_MAX_CHANNELS: Final = 64
_FULL_SCALE: Final = 32_768.0
_PCM: Final = 1
_FLOAT: Final = 3
_MAX_RIFF_BYTES: Final = 2**32 - 1


def write_wav(
    sound: Waveform,
    target: Path,
    *,
    comment: str | None = None,
    as_float: bool = False,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Write a sound to `target` as wav: 16-bit PCM, or float32 with `as_float`.

    A sample x is stored as x * 32768, rounded; what is beyond -1..1 is cut there (count it with
    `clipped_samples`).  `comment` goes into an INFO chunk.  Equal sounds give equal bytes.
    Raises: InvalidParam, NotFinite, EncodingFailed (over 4 GB), and whatever `check` raises; no
    file is left then.
    """
    check_waveform(sound)
    width = 4 if as_float else 2
    count = int(sound.samples.shape[1])
    notes = b"" if comment is None else info_chunk(comment)
    size = count * sound.channels * width
    frame = sound.channels * width
    facts = (_FLOAT if as_float else _PCM, sound.channels, sound.sample_rate_hz)
    head = struct.pack("<HHIIHH", *facts, sound.sample_rate_hz * frame, frame, width * 8)
    chunks = b"fmt " + struct.pack("<I", len(head)) + head
    if as_float:
        chunks += b"fact" + struct.pack("<II", 4, count)
    chunks += notes
    total = _check_riff(sound, width, len(chunks))
    done = False
    try:
        with target.open("wb") as file:
            file.write(b"RIFF" + struct.pack("<I", total) + b"WAVE" + chunks)
            file.write(b"data" + struct.pack("<I", size))
            for block in sound_blocks(sound):
                check()
                kept = np.ascontiguousarray(block, "<f4") if as_float else pcm16(block)
                file.write(kept.data.cast("B"))
            file.write(b"\0" * (size % 2))
        done = True
    finally:
        if not done:
            target.unlink(missing_ok=True)


def _check_riff(sound: Waveform, width: int, chunk_bytes: int) -> int:
    """The size a RIFF file says of itself.  Raises: EncodingFailed where the format ends."""
    size = int(sound.samples.size) * width
    total = 4 + chunk_bytes + 8 + size + size % 2
    if total > _MAX_RIFF_BYTES:
        message = (
            f"The sound would be a wav of {size / 1e9:.1f} GB, and wav ends at 4 GB. "
            "Make it shorter, or store sounds as flac (setting INLINE_AUDIO_FORMAT)."
        )
        raise EncodingFailed(message)
    return total


def write_flac(
    sound: Waveform,
    target: Path,
    *,
    comment: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Write a sound to `target` as 16-bit flac: the same samples as `write_wav`, about half as big.

    Raises: InvalidParam (more than 8 channels too), NotFinite, EncodingFailed, DiskFull,
    RuntimeMissing, and whatever `check` raises; no file is left then.
    """
    check_waveform(sound)
    if sound.channels > _MAX_FLAC_CHANNELS:
        message = (
            f"flac holds {_MAX_FLAC_CHANNELS} channels at most; the sound has {sound.channels}."
        )
        raise InvalidParam(message, param="samples")
    facts_path = target.with_name(f"{target.name}.facts")
    arguments = ["-f", "s16le", "-ar", str(sound.sample_rate_hz), "-ac", str(sound.channels)]
    arguments += ["-i", "pipe:0"]
    done = False
    try:
        if comment is not None:
            facts_path.write_bytes(ffmetadata(comment))
            arguments += ["-f", "ffmetadata", "-i", str(facts_path)]
        arguments += ["-map", "0:a:0", "-map_metadata", "-1" if comment is None else "1"]
        arguments += ["-c:a", "flac", "-sample_fmt", "s16", *EXACT, "-f", "flac", str(target)]
        blocks = (pcm16(block).data.cast("B") for block in sound_blocks(sound))
        run_ffmpeg(arguments, blocks, check, "the sound")
        done = True
    finally:
        facts_path.unlink(missing_ok=True)
        if not done:
            target.unlink(missing_ok=True)


def sound_blocks(sound: Waveform) -> Iterator[NDArray[np.float32]]:
    """The samples in pieces of shape (n, channels), as files order them."""
    for start in range(0, int(sound.samples.shape[1]), BLOCK_SAMPLES):
        yield sound.samples[:, start : start + BLOCK_SAMPLES].T


def pcm16(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """Samples in -1..1 as 16-bit numbers, rounded and cut at the ends, in C order."""
    scaled = np.rint(samples.astype(np.float64) * _FULL_SCALE)
    whole: NDArray[np.int16] = np.clip(scaled, -_FULL_SCALE, _FULL_SCALE - 1).astype("<i2", "C")
    return whole


def clipped_samples(sound: Waveform) -> int:
    """How many samples are beyond -1..1, and so are cut in 16-bit files."""
    return sum(int(np.count_nonzero(np.abs(block) > 1)) for block in sound_blocks(sound))


def check_waveform(sound: Waveform) -> None:
    """Refuse what is no sound.  Raises: InvalidParam, NotFinite."""
    samples, rate = sound.samples, sound.sample_rate_hz
    if samples.ndim != 2 or not 1 <= samples.shape[0] <= _MAX_CHANNELS:  # noqa: PLR2004
        message = (
            f"A sound is float32 of shape (channels, n) with 1 to {_MAX_CHANNELS} channels; "
            f"this has shape {tuple(samples.shape)}."
        )
        raise InvalidParam(message, param="samples")
    if samples.dtype != np.float32:
        message = f"A sound is float32 in -1..1; this is {samples.dtype}."
        raise InvalidParam(message, param="samples")
    if not 1 <= rate <= MAX_RATE_HZ:
        message = f"A sound of {rate} samples per second cannot be stored (1 to {MAX_RATE_HZ})."
        raise InvalidParam(message, param="sample_rate_hz")
    if not all(bool(np.isfinite(block).all()) for block in sound_blocks(sound)):
        message = "The sound has NaN or infinite samples, so it was not stored."
        raise NotFinite(message)
