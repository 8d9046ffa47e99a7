"""A take: one immutable output of one node of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from inline_core.media.kinds import MediaKind

POSTER_EXTENSION: Final = "jpg"


@dataclass(frozen=True, slots=True)
class Take:
    """One output.  `sha256` is of the file's bytes; `deleted_at_ms` is set once the bytes are gone.

    `fps` is of videos, `sample_rate_hz` of sounds and of videos that have one (`has_sound`, None
    for other kinds); `poster` is the SHA-256 of the JPEG that stands for a video.
    `params` are the effective values that made it (seed resolved); `provenance` is all the rest.
    """

    id: str
    run_id: str
    node_id: str
    kind: MediaKind
    extension: str
    sha256: str
    size_bytes: int
    params: Mapping[str, Any]
    created_at_ms: int
    provenance: Mapping[str, Any] = field(default_factory=dict)
    port: str = ""
    width: int | None = None
    height: int | None = None
    duration_s: float | None = None
    deleted_at_ms: int | None = None
    fps: float | None = None
    sample_rate_hz: int | None = None
    has_sound: bool | None = None
    poster: str | None = None

    @property
    def uri(self) -> str:
        """Where the bytes are, relative to `/v1/`; it ends in the extension."""
        return f"takes/{self.id}.{self.extension}"

    @property
    def poster_uri(self) -> str | None:
        """Where the still picture of a video is, relative to `/v1/`; None if there is none."""
        return None if self.poster is None else f"takes/{self.id}/poster"
