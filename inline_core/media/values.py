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


@dataclass(frozen=True, slots=True)
class MediaFile:
    """A video or a sound that stays in its file until a node reads it.

    `kind` is `video` or `audio`; durations are in seconds and None where the file does not say.
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
