"""Downloads on the disk: a JSON file for each, with its partial files in a folder beside it.

Everything lies below `<models>/.downloads/`, where no scan looks, and on the disk of the models, so
that a finished file only needs a rename.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog
from filelock import FileLock, Timeout

from inline_core.downloads.record import Download, from_document, to_document
from inline_core.errors import Conflict, Forbidden, InvalidRequest

_log = structlog.get_logger(__name__)
_ID: Final = re.compile(r"download_[0-9a-f]{12}")


class Store:
    """The files of all downloads into one models folder.  The queue's lock guards it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / ".downloads"
        self._lock: FileLock | None = None

    @property
    def is_claimed(self) -> bool:
        """Whether this server holds the folder."""
        return self._lock is not None

    def exists(self) -> bool:
        """Whether anything was ever downloaded here."""
        return self.folder.is_dir()

    def claim(self) -> None:
        """Make the folder and hold it: two servers must not write the same partial file.

        Raises: Conflict, Forbidden (the models folder cannot be written, or a link leads out).
        """
        if self._lock is not None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.folder.is_symlink():
                message = "models/.downloads is a link: remove it, partial files must stay inside."
                raise Forbidden(message)
            # Taken on one thread, released on the one that stops the services.
            lock = FileLock(self.folder / "server.lock", thread_local=False)
            lock.acquire(timeout=0)
        except Timeout as error:
            message = (
                "Another server downloads into this models folder: ask that one, or give this one "
                "its own with --models-dir."
            )
            raise Conflict(message) from error
        except OSError as error:
            message = (
                f"The models folder cannot be written ({error.strerror or type(error).__name__}): "
                "make it writable, or choose another with --models-dir."
            )
            raise Forbidden(message) from error
        self._lock = lock

    def release(self) -> None:
        """Let another server use the folder; idempotent."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def load(self) -> Iterator[Download]:
        """Every download that is written down; what cannot be read is said and skipped."""
        for path in sorted(self.folder.glob("download_*.json")):
            try:
                download = from_document(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, KeyError, TypeError, InvalidRequest) as error:
                _log.warning("a download's file is not readable", file=path.name, why=str(error))
                continue
            if download.id == path.stem and _ID.fullmatch(download.id):
                yield download

    def save(self, download: Download) -> None:
        """Write a download down, whole or not at all.  Raises: OSError."""
        path = self.folder / f"{download.id}.json"
        draft = path.with_suffix(".tmp")
        with draft.open("w", encoding="utf-8") as file:
            json.dump(to_document(download), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def partial(self, download: Download, index: int) -> Path:
        """The partial file number `index`; its folder is there."""
        folder = self.folder / download.id
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{index}.part"

    def partial_bytes(self, download: Download, index: int) -> int:
        """How much of file number `index` lies here unfinished."""
        try:
            return (self.folder / download.id / f"{index}.part").stat().st_size
        except OSError:
            return 0

    def drop_partials(self, download_id: str) -> None:
        """Throw the unfinished bytes away."""
        shutil.rmtree(self.folder / download_id, ignore_errors=True)

    def forget(self, download: Download) -> None:
        """Throw a download away, with its unfinished bytes."""
        self.drop_partials(download.id)
        (self.folder / f"{download.id}.json").unlink(missing_ok=True)

    def sweep(self, known: set[str]) -> None:
        """Remove partial files that belong to no download, and unfinished writes."""
        for path in self.folder.glob("download_*"):
            if path.is_dir() and not path.is_symlink() and path.name not in known:
                shutil.rmtree(path, ignore_errors=True)
            elif path.suffix == ".tmp":
                path.unlink(missing_ok=True)
