"""One SQLite file: one writer thread that commits in groups, and readers that never wait for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection, Engine, create_engine, event, insert, text
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import NullPool, QueuePool

from inline_core.errors import DiskFull, InlineError, Internal, Unavailable
from inline_core.runs.events import Event, EventType
from inline_core.runs.migrate import migrate
from inline_core.runs.records import now_ms
from inline_core.runs.tables import run_events

Result = TypeVar("Result")

_log = structlog.get_logger(__name__)
_MAX_GROUP = 128
_BUSY_TIMEOUT_MS = 10_000


@dataclass(slots=True)
class Transaction:
    """What a write may use: the connection, and `emit` for the events of its state changes.

    Only the writer thread inserts events, so it numbers them itself and stores those of a write in
    one statement.
    """

    connection: Connection
    next_seq: int
    events: list[Event] = field(default_factory=list)

    def emit(self, run_id: str, event_type: EventType, payload: dict[str, Any]) -> int:
        """Append an event to the log in this very transaction; gives its `seq`."""
        seq = self.next_seq + len(self.events)
        self.events.append(Event(seq, run_id, event_type, payload, now_ms()))
        return seq

    def store_events(self) -> None:
        """Insert what was emitted (called once, when the write is done)."""
        if self.events:
            rows = [
                {
                    "seq": event.seq,
                    "run_id": event.run_id,
                    "type": event.type.value,
                    "payload": event.payload,
                    "at_ms": event.at_ms,
                }
                for event in self.events
            ]
            self.connection.execute(insert(run_events), rows)


@dataclass(slots=True)
class _Write:
    work: Callable[[Transaction], Any]
    future: Future[Any]


CommitListener = Callable[[Sequence[Event]], None]


class Database:
    """The run database.  `write` queues, `read` runs in the calling thread.

    Writes are executed in the order they were queued; all that wait at the same time share one
    fsync, and each future is resolved only after the commit, so what a future confirms survives a
    power cut (WAL, synchronous FULL).
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._writer_engine = _engine(path, query_only=False)
        self._reader_engine = _engine(path, query_only=True)
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._listeners: list[CommitListener] = []
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._gate = threading.Lock()
        self._next_seq = 1

    def open(self) -> None:
        """Migrate, then start the writer thread.  Raises: Conflict (newer schema), DiskFull."""
        try:
            migrate(self._writer_engine, self.path)
        except DatabaseError as error:
            raise _translate(error) from error
        # AUTOINCREMENT's own counter, so that a seq is never used twice even after deletions.
        self._next_seq = 1 + self.read(
            lambda connection: connection.execute(
                text("SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence WHERE name = 'run_events'")
            ).scalar_one()
        )
        self._thread = threading.Thread(target=self._serve, name="database-writer", daemon=True)
        self._thread.start()

    def on_commit(self, listener: CommitListener) -> None:
        """Call `listener` with the events of each commit, on the writer thread, in order."""
        self._listeners.append(listener)

    def write(self, work: Callable[[Transaction], Result]) -> Future[Result]:
        """Queue a write; an exception inside it undoes just that write.

        Any thread.  The future raises what `work` raised, DiskFull, or Unavailable at shutdown.
        """
        future: Future[Result] = Future()
        with self._gate:
            if self._closed.is_set():
                future.set_exception(Unavailable("The server is stopping."))
            else:
                self._queue.put(_Write(work, future))
        return future

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Run `work` in one read transaction (a consistent snapshot), in this thread."""
        try:
            with self._reader_engine.begin() as connection:
                return work(connection)
        except DatabaseError as error:
            raise _translate(error) from error

    def close(self) -> None:
        """Finish the queued writes, then close; idempotent."""
        with self._gate:
            if not self._closed.is_set():
                self._closed.set()
                self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
        self._writer_engine.dispose()
        self._reader_engine.dispose()

    def _serve(self) -> None:
        with self._writer_engine.connect() as connection:
            while True:
                group, last = self._next_group()
                if group:
                    self._commit(connection, group)
                if last:
                    return

    def _next_group(self) -> tuple[list[_Write], bool]:
        first = self._queue.get()
        if first is None:
            return [], True
        group = [first]
        while len(group) < _MAX_GROUP:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is None:
                return group, True
            group.append(item)
        return group, False

    def _commit(self, connection: Connection, group: list[_Write]) -> None:
        """Run a group of writes and commit them with one fsync."""
        outcomes: list[tuple[_Write, Any]] = []
        events: list[Event] = []
        try:
            with connection.begin():
                for write in group:
                    # A write that is alone is undone by the transaction itself.
                    guard = connection.begin_nested() if len(group) > 1 else nullcontext()
                    transaction = Transaction(connection, self._next_seq + len(events))
                    try:
                        with guard:
                            result = write.work(transaction)
                            transaction.store_events()
                    except OperationalError:
                        # A full disk or a broken file concerns the whole transaction.
                        raise
                    except Exception as error:
                        if len(group) == 1:
                            raise
                        outcomes.append((write, _logged(error)))
                    else:
                        events.extend(transaction.events)
                        outcomes.append((write, _Value(result)))
        except Exception as error:  # noqa: BLE001 - the worker-loop border: fail the group, go on
            self._fail(group, error)
            return
        self._next_seq += len(events)
        # Listeners first: whoever wakes up from a future finds the events already in the log.
        for listener in self._listeners:
            listener(events)
        for write, outcome in outcomes:
            if isinstance(outcome, _Value):
                write.future.set_result(outcome.value)
            else:
                write.future.set_exception(outcome)

    @staticmethod
    def _fail(group: list[_Write], error: Exception) -> None:
        translated = _logged(error)
        for write in group:
            write.future.set_exception(translated)


@dataclass(frozen=True, slots=True)
class _Value:
    value: Any


def _logged(error: Exception) -> InlineError:
    translated = _translate(error)
    if isinstance(translated, Internal):
        _log.error("database write failed", exc_info=error)
    return translated


def _translate(error: Exception) -> InlineError:
    if isinstance(error, InlineError):
        return error
    if "full" in str(error) and isinstance(error, DatabaseError):
        return DiskFull("The disk is full: the run database could not be written. Free some space.")
    return Internal("The run database could not be used; the server's log has the reason.")


def _engine(path: Path, *, query_only: bool) -> Engine:
    pool: dict[str, Any] = (
        {"poolclass": QueuePool, "pool_size": 8, "max_overflow": 64}
        if query_only
        else {"poolclass": NullPool}
    )
    engine = create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False}, **pool)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        # pysqlite would begin transactions by itself, too late for savepoints.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        if query_only:
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if query_only else "BEGIN IMMEDIATE")

    return engine
