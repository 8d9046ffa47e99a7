"""One download at work: ask the hub, check the room, fetch each file, put all in place."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from inline_core.downloads.hub import Hub, RemoteFile
from inline_core.downloads.record import Download, FileProgress
from inline_core.downloads.request import Wanted, destinations
from inline_core.downloads.stop import StopSignal
from inline_core.downloads.store import Store
from inline_core.downloads.transfer import fetch, file_digest
from inline_core.errors import Conflict, DiskFull
from inline_core.loading.scan import SETTLED_S

# Room that must be left over: takes and the database need some, and often share the disk.
MARGIN_BYTES: Final = 1024**3


class Job:
    """The steps of one download, in order: `describe`, `fetch`, `place`.  One thread."""

    def __init__(
        self,
        hub: Hub,
        store: Store,
        download: Download,
        stop: StopSignal,
        pause_s: Callable[[int], float],
    ) -> None:
        self.download = download
        self._hub = hub
        self._store = store
        self._stop = stop
        self._pause_s = pause_s
        self._remotes: list[RemoteFile] = []
        self._places = destinations(store.root, download.wanted)

    def describe(self) -> None:
        """Ask the hub for sizes and hashes, and see what is here already and whether all fits.

        Raises: Conflict (another file is in the way), DiskFull, Stopped, and what the hub raises.
        """
        for index, file in enumerate(self.download.wanted.files):
            remote = self._hub.describe(file)
            self._stop.check()
            self._remotes.append(remote)
            partial = self._store.partial(self.download, index)
            if self.download.files[index].digest not in {None, remote.digest}:
                partial.unlink(missing_ok=True)  # the hub has another file now
            shown = f"models/{self.download.wanted.category}/{file.name}"
            there = _there(self._places[index], shown, remote, self._stop)
            done = remote.size_bytes if there else self._store.partial_bytes(self.download, index)
            self.download = self.download.with_file(
                index,
                bytes_done=done,
                size_bytes=remote.size_bytes,
                digest=remote.digest,
                placed=there,
            )
        self._check_room()

    def _check_room(self) -> None:
        needed = sum(
            max(0, (file.size_bytes or 0) - file.bytes_done) for file in self.download.files
        )
        free = shutil.disk_usage(self._store.root).free
        if needed and free < needed + MARGIN_BYTES:
            short = needed + MARGIN_BYTES - free
            message = (
                f"models/{self.download.wanted.target} needs {_in_words(needed)} more and "
                f"{_in_words(MARGIN_BYTES)} left over, but only {_in_words(free)} are free on the "
                f"disk of the models folder: free {_in_words(short)}, then resume the download."
            )
            details = {"neededBytes": needed, "freeBytes": free, "marginBytes": MARGIN_BYTES}
            raise DiskFull(message, details=details)

    def fetch(self, report: Callable[[int, int], None]) -> None:
        """Bring every partial file to its end; `report` hears (index, bytes that are there).

        Raises: what `transfer.fetch` raises.
        """
        for index, remote in enumerate(self._remotes):
            if self.download.files[index].placed:
                continue
            fetch(
                self._hub,
                remote,
                self._store.partial(self.download, index),
                self._stop,
                lambda done, index=index: report(index, done),  # type: ignore[misc]
                self._pause_s,
            )

    def progressed(self, index: int, bytes_done: int) -> tuple[FileProgress, ...]:
        """The files, one of them with a new count."""
        self.download = self.download.with_file(index, bytes_done=bytes_done)
        return self.download.files

    def place(self) -> tuple[FileProgress, ...]:
        """Give every checked file its final name; weights last, so that no half folder is offered.

        Raises: Conflict, Forbidden, OSError.
        """
        order = sorted(range(len(self._places)), key=lambda i: not _is_text(self._places[i]))
        for index in order:
            if self.download.files[index].placed:
                continue
            place = self._places[index]
            place.parent.mkdir(parents=True, exist_ok=True)
            # A link may have been put there since the download was asked for.
            destinations(self._store.root, self.download.wanted)
            partial = self._store.partial(self.download, index)
            # The file is whole and checked: the scanner need not wait for it to settle.
            settled = time.time() - 2 * SETTLED_S
            os.utime(partial, (settled, settled))
            _name_once(partial, place, self.download.wanted)
            self.download = self.download.with_file(index, placed=_mark(place))
        return self.download.files


def compare_existing(
    hub: Hub, wanted: Wanted, places: tuple[Path, ...]
) -> tuple[FileProgress, ...]:
    """How far each file is when files of those names may be there already.

    Asks the hub only for files that are there.  Raises: Conflict if one of them is another file.
    """
    found = []
    for file, place in zip(wanted.files, places, strict=True):
        if not os.path.lexists(place):
            found.append(FileProgress())
            continue
        remote = hub.describe(file)
        mark = _there(place, f"models/{wanted.category}/{file.name}", remote, None)
        found.append(FileProgress(remote.size_bytes, remote.size_bytes, remote.digest, mark))
    return tuple(found)


def all_there(files: tuple[FileProgress, ...]) -> bool:
    """Whether every file lies in place."""
    return all(file.placed for file in files)


def unchanged(download: Download, places: tuple[Path, ...]) -> bool:
    """Whether the files of a finished download are still the ones that were put there."""
    return all(
        file.placed is not None and place.is_file() and _mark(place) == file.placed
        for file, place in zip(download.files, places, strict=True)
    )


def _there(
    place: Path, shown: str, remote: RemoteFile, stop: StopSignal | None
) -> tuple[int, int] | None:
    """The mark of a file that is there and is the hub's; None if there is none.

    Raises: Conflict if it is another file.
    """
    if not os.path.lexists(place):
        return None
    remedy = "It is never overwritten: move it away, or download under another name."
    if not place.is_file():
        message = f"{shown} exists and is not a plain file. {remedy}"
        raise Conflict(message)
    size = place.stat().st_size
    if size != remote.size_bytes:
        message = (
            f"{shown} exists and is another file: it has {size} bytes, {remote.label} has "
            f"{remote.size_bytes}. {remedy}"
        )
        raise Conflict(message, details={"bytes": size, "hubBytes": remote.size_bytes})
    digest = file_digest(place, remote, stop)
    if digest != remote.digest:
        message = (
            f"{shown} exists and is another file: its hash is {digest}, that of {remote.label} is "
            f"{remote.digest}. {remedy}"
        )
        raise Conflict(message, details={"hash": digest, "hubHash": remote.digest})
    return _mark(place)


def _name_once(partial: Path, place: Path, wanted: Wanted) -> None:
    """Move a file to a name that nothing has.  Raises: Conflict."""
    try:
        os.link(partial, place)
    except FileExistsError as error:
        message = (
            f"models/{wanted.target} appeared while it was downloaded; it is never overwritten: "
            "move it away, then resume."
        )
        raise Conflict(message) from error
    except OSError:
        # A disk without hard links.
        if os.path.lexists(place):
            raise
        partial.rename(place)
    else:
        partial.unlink()


def _mark(place: Path) -> tuple[int, int]:
    status = place.stat()
    return status.st_size, status.st_mtime_ns


def _is_text(place: Path) -> bool:
    return place.suffix.lower() in {".json", ".txt", ".model", ".jinja"}


def _in_words(size_bytes: int) -> str:
    if size_bytes >= 10**9:
        return f"{size_bytes / 10**9:.1f} GB"
    return f"{size_bytes / 10**6:.1f} MB"
