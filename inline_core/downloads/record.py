"""One download: its files, how far it is, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from inline_core.downloads.request import Wanted, checked
from inline_core.errors import InlineError
from inline_core.loading.rules import RequiredFile


class State(StrEnum):
    """Where a download stands.  All but `queued`, `running` and `done` can be resumed."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"

    @property
    def is_active(self) -> bool:
        """Waiting for its turn, or fetching."""
        return self in {State.QUEUED, State.RUNNING}


@dataclass(frozen=True, slots=True)
class FileProgress:
    """How far one file is.

    `digest` is what the hub says: 64 hex digits are a sha256, 40 the sha1 of a git blob.
    `size_bytes` is None until the hub was asked.  `placed` is the size and time (ns) of the
    finished file, to see whether it is still the one that was downloaded.
    """

    bytes_done: int = 0
    size_bytes: int | None = None
    digest: str | None = None
    placed: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a download failed, as the wire tells it."""

    code: str
    message: str
    details: Mapping[str, Any]

    @classmethod
    def of(cls, error: InlineError) -> Failure:
        """The code, message and details of an error."""
        return cls(error.code, error.message, dict(error.details))


@dataclass(frozen=True, slots=True)
class Download:
    """A download as it was at one moment; times are milliseconds since the epoch."""

    id: str
    wanted: Wanted
    state: State
    files: tuple[FileProgress, ...]
    created_at_ms: int
    updated_at_ms: int
    finished_at_ms: int | None = None
    error: Failure | None = None

    @property
    def bytes_done(self) -> int:
        """Bytes of all files that are here."""
        return sum(file.bytes_done for file in self.files)

    @property
    def bytes_total(self) -> int | None:
        """Bytes of all files, or None while the hub was not asked."""
        sizes = [file.size_bytes for file in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def with_file(self, index: int, **changes: Any) -> Download:
        """The same with other facts about one file."""
        files = list(self.files)
        files[index] = replace(files[index], **changes)
        return replace(self, files=tuple(files))


def to_document(download: Download) -> dict[str, Any]:
    """The download as a JSON document."""
    return asdict(download) | {"state": download.state.value}


def from_document(document: Mapping[str, Any]) -> Download:
    """A download from its document, its names checked again.

    Raises: KeyError, TypeError, ValueError, InvalidRequest if it is not one.
    """
    wanted = document["wanted"]
    error = document["error"]
    files = tuple(RequiredFile(**file) for file in wanted["files"])
    progress = tuple(
        FileProgress(**{**file, "placed": tuple(file["placed"]) if file["placed"] else None})
        for file in document["files"]
    )
    if len(files) != len(progress) or not files:
        message = "the files and their progress do not match"
        raise ValueError(message)
    return Download(
        **{
            **document,
            "wanted": checked(Wanted(**{**wanted, "files": files})),
            "state": State(document["state"]),
            "files": progress,
            "error": Failure(**error) if error else None,
        }
    )
