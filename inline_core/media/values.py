"""Values of the media ports, as they travel between nodes: plain, on the CPU, immutable."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """A picture: `pixels` is uint8, shape (height, width, 3 or 4), sRGB, alpha straight.

    `provenance` is what made it (seed, solver, model files, ...), JSON-ready; it ends up in the
    take and in the PNG.
    """

    pixels: NDArray[np.uint8]
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Width in pixels."""
        return int(self.pixels.shape[1])

    @property
    def height(self) -> int:
        """Height in pixels."""
        return int(self.pixels.shape[0])

    @property
    def size_bytes(self) -> int:
        """Memory the pixels take, in bytes."""
        return int(self.pixels.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class ImageBatch:
    """Several pictures of one node, in order (a batch that was decoded together)."""

    images: tuple[Image, ...]

    @property
    def size_bytes(self) -> int:
        """Memory the pixels take, in bytes."""
        return sum(image.size_bytes for image in self.images)


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """A mask: `values` is uint8, shape (height, width); 255 means "here"."""

    values: NDArray[np.uint8]

    @property
    def size_bytes(self) -> int:
        """Memory the mask takes, in bytes."""
        return int(self.values.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class Waveform:
    """A sound: `samples` is float32, shape (channels, n), in -1..1.

    `provenance` is as for `Image`; it ends up in the take and in the sound file.
    """

    samples: NDArray[np.float32]
    sample_rate_hz: int
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def channels(self) -> int:
        """How many channels it has (1: mono, 2: stereo)."""
        return int(self.samples.shape[0])

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return int(self.samples.shape[1]) / self.sample_rate_hz

    @property
    def size_bytes(self) -> int:
        """Memory the samples take, in bytes."""
        return int(self.samples.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """A video: `frames` is uint8, shape (n, height, width, 3), sRGB, `fps` of them a second.

    `sound` starts with the first frame; it may be longer or shorter than the pictures.
    `provenance` is as for `Image`; it ends up in the take and in the mp4.
    """

    frames: NDArray[np.uint8]
    fps: float
    sound: Waveform | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Width in pixels."""
        return int(self.frames.shape[2])

    @property
    def height(self) -> int:
        """Height in pixels."""
        return int(self.frames.shape[1])

    @property
    def frame_count(self) -> int:
        """How many frames it has."""
        return int(self.frames.shape[0])

    @property
    def duration_s(self) -> float:
        """Length of the pictures in seconds."""
        return self.frame_count / self.fps

    @property
    def size_bytes(self) -> int:
        """Memory the frames and the sound take, in bytes."""
        return int(self.frames.nbytes) + (self.sound.size_bytes if self.sound else 0)


@dataclass(frozen=True, slots=True)
class MediaFile:
    """A video or a sound that stays in its file until a node reads it.

    `kind` is `video` or `audio`; durations are in seconds and None where the file does not say.
    Sizes are as shown, a rotation that the file asks for applied.  `provenance` is what made it,
    where it is a take.
    """

    kind: str
    path: Path
    sha256: str
    duration_s: float | None = None
    width: int | None = None
    height: int | None = None
    fps: float | None = None
    sample_rate_hz: int | None = None
    channels: int | None = None
    provenance: dict[str, Any] = field(default_factory=dict, compare=False)
