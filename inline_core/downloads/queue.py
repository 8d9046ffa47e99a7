"""The downloads of a server: two at a time, stopped and resumed at will, kept over restarts."""

from __future__ import annotations

import errno
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import structlog

from inline_core.downloads.feed import Feed, Reader
from inline_core.downloads.hub import Hub
from inline_core.downloads.job import Job, all_there, compare_existing, unchanged
from inline_core.downloads.record import Download, Failure, FileProgress, State
from inline_core.downloads.request import Wanted, destinations, sources
from inline_core.downloads.stop import Stopped, StopSignal
from inline_core.downloads.store import Store
from inline_core.errors import (
    Conflict,
    DiskFull,
    DownloadFailed,
    InlineError,
    Internal,
    NotFound,
    QueueFull,
    Unavailable,
)

_log = structlog.get_logger(__name__)
MOST_RUNNING: Final = 2
MOST_ACTIVE: Final = 100
_MOST_KEPT: Final = 200
_JOIN_S: Final = 5.0


def _pause_s(fruitless: int) -> float:
    """1, 2, 4, 8 seconds between tries that bring nothing."""
    return 2.0 ** (fruitless - 1)


@dataclass(slots=True)
class _Running:
    """A worker, how to stop it, and whether its files are in place already."""

    stop: StopSignal = field(default_factory=StopSignal)
    thread: threading.Thread | None = None
    placed: bool = False


class Downloads:
    """Every download into `root`.  Any thread; routes that call it must be allowed to block.

    `arrived` is called on a worker's thread when new files lie in place.
    """

    def __init__(
        self,
        root: Path,
        *,
        arrived: Callable[[], None],
        hub: Hub | None = None,
        pause_s: Callable[[int], float] = _pause_s,
    ) -> None:
        self._root = root.absolute()
        self._store = Store(self._root)
        self._hub = hub or Hub()
        self._arrived = arrived
        self._pause_s = pause_s
        self._lock = threading.RLock()
        self._records: dict[str, Download] = {}
        self._running: dict[str, _Running] = {}
        self._stopping = False
        self.feed = Feed()

    def start(self) -> None:
        """Read what earlier servers left; nothing is fetched.  Raises nothing."""
        with self._lock:
            if self._store.exists():
                try:
                    self._open()
                except InlineError as error:
                    _log.warning("downloads are not available", why=error.message)

    def stop(self) -> None:
        """Interrupt what runs or waits, so that it can be resumed; idempotent."""
        with self._lock:
            self._stopping = True
            workers = list(self._running.values())
            for download in list(self._records.values()):
                running = self._running.get(download.id)
                if download.state.is_active and not (running and running.placed):
                    self._change(download.id, state=State.INTERRUPTED)
            for running in workers:
                running.stop.set()
        for running in workers:
            if running.thread is not None:
                running.thread.join(_JOIN_S)
        self._store.release()

    # ---- what clients ask ----------------------------------------------------------------------

    def all(self) -> tuple[Download, ...]:
        """Every download, newest first."""
        with self._lock:
            return tuple(
                sorted(self._records.values(), key=lambda d: (d.created_at_ms, d.id), reverse=True)
            )

    def follow(self, wake: Callable[[], None]) -> tuple[Reader, tuple[Download, ...]]:
        """A reader of all news, and every download at the moment from which it reads.

        Nothing it reads is older than these.  `wake` is called from any thread; `feed.close` ends
        it.
        """
        with self._lock:
            return self.feed.open(wake), self.all()

    def get(self, download_id: str) -> Download:
        """One download.  Raises: NotFound."""
        with self._lock:
            found = self._records.get(download_id)
        if found is None:
            message = f"There is no download {download_id!r}."
            raise NotFound(message)
        return found

    def latest(self, target: str) -> Download | None:
        """The download into `<category>/<name>`, whatever became of it; None if there is none."""
        with self._lock:
            return next((d for d in self._records.values() if d.wanted.target == target), None)

    def add(self, wanted: Wanted) -> Download:
        """Begin, continue or find the download of these files.

        A finished one is found again while its files are unchanged.  Asks the hub only where a
        file is in the way, to compare it.
        Raises: Conflict (another file is in the way, or another source is being downloaded there),
        Forbidden, HubOffline, QueueFull, Unavailable, and what `Hub.describe` raises.
        """
        places = destinations(self._root, wanted)
        known = self.latest(wanted.target)
        if known is not None and known.state.is_active:
            return self._joined(known, wanted)
        if known is not None and known.wanted.same_source(wanted) and unchanged(known, places):
            return known
        files = compare_existing(self._hub, wanted, places)
        finished = all_there(files)
        if not finished:
            self._hub.check_online()
        with self._lock:
            self._open()
            known = self.latest(wanted.target)
            if known is not None and known.state.is_active:
                return self._joined(known, wanted)
            self._check_queue()
            if known is not None and known.wanted.same_source(wanted):
                made = self._requeued(known)
            else:
                if known is not None:
                    self._forget(known)
                made = self._new(wanted, files)
            if finished:
                self._store.drop_partials(made.id)
                return self._change(made.id, state=State.DONE, files=files, finished_at_ms=_now())
            self._start_next()
            return self._records[made.id]

    def cancel(self, download_id: str) -> Download:
        """Stop a download; what came is kept.  Raises: NotFound, Conflict (it has ended)."""
        with self._lock:
            download = self.get(download_id)
            running = self._running.get(download_id)
            if not download.state.is_active or (running is not None and running.placed):
                state = download.state.value
                message = f"The download of {download.wanted.target} is not running: {state}."
                raise Conflict(message, details={"state": state})
            return self._halt(download, State.CANCELLED)

    def discard(self, download_id: str) -> Download:
        """Stop a download and throw its record and unfinished bytes away; finished files stay.

        Raises: NotFound.
        """
        with self._lock:
            download = self.get(download_id)
            if download.state.is_active:
                download = self._halt(download, State.CANCELLED)
            self._forget(download)
            return download

    def resume(self, download_id: str) -> Download:
        """Go on where a download stopped; one that runs, waits or is done is given as it is.

        Raises: NotFound, and what `add` raises.
        """
        return self.add(self.get(download_id).wanted)

    # ---- under the lock ------------------------------------------------------------------------

    def _open(self) -> None:
        """Hold the folder; the first time, read what is there.  Raises: Conflict, Forbidden."""
        if self._stopping:
            message = "The server is stopping: download it when it runs again."
            raise Unavailable(message)
        if self._store.is_claimed:
            return
        self._store.claim()
        for found in self._store.load():
            files = self._counted(found)
            self._records[found.id] = replace(found, files=files)
            if found.state.is_active:
                self._change(found.id, state=State.INTERRUPTED)
        self._store.sweep(set(self._records))

    def _check_queue(self) -> None:
        if sum(download.state.is_active for download in self._records.values()) >= MOST_ACTIVE:
            message = f"{MOST_ACTIVE} downloads wait already: let some end, or cancel some."
            raise QueueFull(message)

    @staticmethod
    def _joined(known: Download, wanted: Wanted) -> Download:
        if known.wanted.same_source(wanted):
            return known
        message = (
            f"models/{wanted.target} is being downloaded from {sources(known.wanted.files)}: "
            "cancel that, or choose another name."
        )
        raise Conflict(message, details={"id": known.id, "state": known.state.value})

    def _new(self, wanted: Wanted, files: tuple[FileProgress, ...]) -> Download:
        ended = [
            d
            for d in self.all()
            if d.state is State.DONE or not (d.state.is_active or d.bytes_done)
        ]
        for old in ended[_MOST_KEPT:]:
            self._forget(old)
        now = _now()
        made = Download(
            f"download_{secrets.token_hex(6)}", wanted, State.QUEUED, files, now, now
        )  # fmt: skip
        self._records[made.id] = made
        return self._change(made.id)

    def _requeued(self, known: Download) -> Download:
        files = tuple(replace(file, placed=None) for file in known.files)
        files = self._counted(replace(known, files=files))
        return self._change(
            known.id, state=State.QUEUED, files=files, error=None, finished_at_ms=None
        )

    def _change(self, download_id: str, **changes: Any) -> Download:
        """Write down and tell a new state."""
        made = replace(self._records[download_id], updated_at_ms=_now(), **changes)
        self._records[download_id] = made
        try:
            self._store.save(made)
        except OSError as error:
            _log.warning("a download could not be written down", why=error.strerror)
        self.feed.publish(made, changed=True)
        return made

    def _halt(self, download: Download, state: State) -> Download:
        running = self._running.get(download.id)
        halted = self._change(download.id, state=state, finished_at_ms=_now())
        if running is not None:
            running.stop.set()
        return halted

    def _forget(self, download: Download) -> None:
        self._records.pop(download.id, None)
        self._store.forget(download)

    def _start_next(self) -> None:
        waiting = sorted(
            (d for d in self._records.values() if d.state is State.QUEUED),
            key=lambda d: (d.updated_at_ms, d.created_at_ms),
        )
        for download in waiting:
            # One that was cancelled and asked for again waits for its old worker to leave.
            if self._stopping or len(self._running) >= MOST_RUNNING:
                return
            if download.id not in self._running:
                self._launch(download)

    def _launch(self, download: Download) -> None:
        running = _Running()
        running.thread = threading.Thread(
            target=self._work, args=(download.id, running), name=download.id, daemon=True
        )
        self._running[download.id] = running
        self._change(download.id, state=State.RUNNING)
        running.thread.start()

    # ---- on a worker's thread ------------------------------------------------------------------

    def _work(self, download_id: str, running: _Running) -> None:
        error: InlineError | None = None
        try:
            self._fetch(download_id, running)
        except Stopped:
            pass  # who stopped it has said what it is now
        except InlineError as failure:
            error = failure
        except OSError as failure:
            error = _disk_error(failure)
        except Exception:  # noqa: BLE001 - the border of this worker: settle whatever it was
            _log.exception("a download failed", download=download_id)
            error = Internal("The server failed at this download; its log has why.")
        with self._lock:
            self._running.pop(download_id, None)
            if error is not None and not running.stop.is_set:
                _log.info("a download failed", download=download_id, code=error.code)
                self._change(
                    download_id,
                    state=State.FAILED,
                    error=Failure.of(error),
                    finished_at_ms=_now(),
                    files=self._counted(self._records[download_id]),
                )
            elif download_id not in self._records:
                self._store.drop_partials(download_id)
            self._start_next()

    def _counted(self, download: Download) -> tuple[FileProgress, ...]:
        """The files with the bytes that are really there."""
        return tuple(
            file
            if file.placed
            else replace(file, bytes_done=self._store.partial_bytes(download, i))
            for i, file in enumerate(download.files)
        )

    def _fetch(self, download_id: str, running: _Running) -> None:
        job = Job(self._hub, self._store, self.get(download_id), running.stop, self._pause_s)
        job.describe()
        self._note(download_id, running, job.download.files, changed=True)

        def report(index: int, bytes_done: int) -> None:
            files = job.progressed(index, bytes_done)
            self._note(download_id, running, files, changed=False)

        job.fetch(report)
        with self._lock:
            running.stop.check()
            running.placed = True
            placed = job.place()
        self._arrived()
        with self._lock:
            if download_id in self._records:
                self._change(download_id, state=State.DONE, files=placed, finished_at_ms=_now())
            self._store.drop_partials(download_id)

    def _note(
        self,
        download_id: str,
        running: _Running,
        files: tuple[FileProgress, ...],
        *,
        changed: bool,
    ) -> None:
        """Keep how far it is; sizes and hashes are written down, counts of bytes are not."""
        with self._lock:
            running.stop.check()
            if changed:
                self._change(download_id, files=files)
            else:
                made = replace(self._records[download_id], files=files)
                self._records[download_id] = made
                self.feed.publish(made, changed=False)


def _disk_error(error: OSError) -> InlineError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        message = (
            "The disk of the models folder is full: free some space, then resume the download."
        )
        return DiskFull(message)
    why = error.strerror or type(error).__name__
    message = f"The models folder could not be written ({why}): resume the download afterwards."
    return DownloadFailed(message)


def _now() -> int:
    return time.time_ns() // 1_000_000
