"""Clips and sounds drawn by the tests, and what PyAV says of a file."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import numpy as np
from imageio_ffmpeg import get_ffmpeg_exe  # type: ignore[import-untyped]

from inline_core.media.probe import probe
from inline_core.media.values import Clip, MediaFile, Waveform

BARS = np.array(
    [
        [255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0],
        [0, 255, 255], [255, 0, 255], [255, 255, 255], [0, 0, 0],
    ],
    np.uint8,
)  # fmt: skip


def moving(count: int, width: int = 64, height: int = 48, fps: float = 24.0) -> Clip:
    """Saturated bars below; above them a smooth ramp that gets brighter, one step a frame."""
    frames = np.zeros((count, height, width, 3), np.uint8)
    columns = np.arange(width) * len(BARS) // width
    frames[:, height // 2 :] = BARS[columns]
    for index in range(count):
        frames[index, : height // 2] = 16 + (index * 220) // max(1, count)
    return Clip(frames, fps)


def tone(seconds: float, rate: int = 48_000, channels: int = 2, hz: float = 440.0) -> Waveform:
    """A sine at half of full scale, each channel a little quieter than the one before."""
    times = np.arange(round(seconds * rate)) / rate
    row = 0.5 * np.sin(2 * np.pi * hz * times)
    samples = np.stack([row / (1 + index) for index in range(channels)]).astype(np.float32)
    return Waveform(samples, rate)


def media_file(path: Path, kind: str = "video") -> MediaFile:
    """A file as an input node gives it."""
    info = probe(path, max_pixels=10**8, name=path.name)
    return MediaFile(
        kind, path, "0" * 64, info.duration_s, info.width, info.height, info.fps,
        info.sample_rate_hz, info.channels,
    )  # fmt: skip


def ffmpeg(*arguments: str) -> None:
    """Make an odd file the way other programs do."""
    command = [get_ffmpeg_exe(), "-y", "-nostdin", "-loglevel", "error", *arguments]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def boxes(data: bytes) -> list[str]:
    """The kinds of the boxes of an mp4, in order."""
    found, place = [], 0
    while place < len(data):
        size, kind = struct.unpack(">I4s", data[place : place + 8])
        found.append(kind.decode("latin-1"))
        place += size
    return found
