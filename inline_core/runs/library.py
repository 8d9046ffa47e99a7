"""Stored results: assets coming in; takes and finished runs going away, explicitly or by age."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from inline_core.errors import Conflict, NotFound, OutputUnavailable
from inline_core.runs.database import Database, Transaction
from inline_core.runs.records import AssetRecord, now_ms
from inline_core.runs.states import RunStatus
from inline_core.runs.tables import assets, run_tags, run_takes, runs, server_state, takes
from inline_core.takes.take import POSTER_EXTENSION

_FINAL = [status.value for status in RunStatus if status.is_final]
_PURGE_CHUNK = 200
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A content-addressed file that nothing refers to any more."""

    sha256: str
    extension: str


class Library:
    """Writes about assets, takes and the end of runs; any thread.

    `free` is called for each file that nothing refers to any more, inside the write and on the
    writer thread, so that no other write can come to rely on the file in between.
    """

    def __init__(self, database: Database, free: Callable[[StoredFile], None]) -> None:
        self._database = database
        self._free = free

    def add_asset(self, asset: AssetRecord) -> Future[AssetRecord]:
        """Store an asset; the same bytes again give the first record."""

        def work(transaction: Transaction) -> AssetRecord:
            values = {name: getattr(asset, name) for name in assets.c.keys()}  # noqa: SIM118
            statement = upsert(assets).values(**values).on_conflict_do_nothing()
            transaction.connection.execute(statement)
            return asset

        return self._database.write(work)

    def delete_take(self, take_id: str) -> Future[None]:
        """Free a take's bytes; its row stays and says so.  Raises: NotFound, OutputUnavailable."""

        def work(transaction: Transaction) -> None:
            row = transaction.connection.execute(
                select(takes.c.deleted_at_ms).where(takes.c.id == take_id)
            ).one_or_none()
            if row is None:
                message = f"No take {take_id!r}."
                raise NotFound(message)
            if row.deleted_at_ms is not None:
                message = f"Take {take_id!r} was deleted already."
                raise OutputUnavailable(message)
            self._delete_takes(transaction.connection, [take_id])

        return self._database.write(work)

    def delete_run(self, run_id: str) -> Future[None]:
        """Forget a finished run, and the takes that no other run uses.

        Raises: NotFound, Conflict (the run is not finished).
        """

        def work(transaction: Transaction) -> None:
            status = transaction.connection.execute(
                select(runs.c.status).where(runs.c.id == run_id)
            ).scalar_one_or_none()
            if status is None:
                message = f"No run {run_id!r}."
                raise NotFound(message)
            if status not in _FINAL:
                message = f"Run {run_id!r} is {status}; cancel it first."
                raise Conflict(message, details={"status": status})
            self._delete_runs(transaction.connection, [run_id])

        return self._database.write(work)

    def untag(self, tag: str, run_ids: Sequence[str] | None = None) -> Future[None]:
        """Take `tag` off finished runs: those of `run_ids`, or all; runs and takes stay."""

        def work(transaction: Transaction) -> None:
            finished = select(runs.c.id).where(runs.c.status.in_(_FINAL))
            chosen = [run_tags.c.tag == tag, run_tags.c.run_id.in_(finished)]
            if run_ids is not None:
                chosen.append(run_tags.c.run_id.in_(run_ids))
            transaction.connection.execute(delete(run_tags).where(*chosen))

        return self._database.write(work)

    def retain(self, *, keep_runs: int, keep_days: float) -> Future[int]:
        """Delete finished runs beyond the retention settings (0: no limit); gives how many."""

        def work(transaction: Transaction) -> int:
            connection = transaction.connection
            finished = runs.c.status.in_(_FINAL)
            expired: set[str] = set()
            if keep_runs:
                query = select(runs.c.id).where(finished).order_by(runs.c.finished_at_ms.desc())
                expired.update(
                    connection.execute(query.offset(keep_runs).limit(_PURGE_CHUNK)).scalars()
                )
            if keep_days:
                oldest = now_ms() - int(keep_days * _DAY_MS)
                query = select(runs.c.id).where(finished, runs.c.finished_at_ms < oldest)
                expired.update(connection.execute(query.limit(_PURGE_CHUNK)).scalars())
            if expired:
                self._delete_runs(connection, sorted(expired))
            return len(expired)

        return self._database.write(work)

    def set_state(self, key: str, value: object) -> Future[None]:
        """Remember a small value of the server itself (for example: the queue is paused)."""

        def work(transaction: Transaction) -> None:
            statement = upsert(server_state).values(key=key, value=value)
            transaction.connection.execute(
                statement.on_conflict_do_update(index_elements=["key"], set_={"value": value})
            )

        return self._database.write(work)

    def _delete_runs(self, connection: Connection, run_ids: Sequence[str]) -> None:
        owned = connection.execute(
            select(run_takes.c.take_id).where(run_takes.c.run_id.in_(run_ids))
        ).scalars()
        candidates = set(owned)
        connection.execute(delete(runs).where(runs.c.id.in_(run_ids)))
        if not candidates:
            return
        still_used = set(
            connection.execute(
                select(run_takes.c.take_id).where(run_takes.c.take_id.in_(candidates))
            ).scalars()
        )
        self._delete_takes(connection, sorted(candidates - still_used))

    def _delete_takes(self, connection: Connection, take_ids: Sequence[str]) -> None:
        """Mark takes deleted, and free each file that no living take refers to."""
        chosen = takes.c.id.in_(take_ids)
        alive = takes.c.deleted_at_ms.is_(None)
        columns = (takes.c.sha256, takes.c.extension, takes.c.poster)
        rows = connection.execute(select(*columns).where(chosen, alive).distinct()).all()
        connection.execute(update(takes).where(chosen).values(deleted_at_ms=now_ms()))
        files = {(takes.c.sha256, row.sha256, row.extension) for row in rows}
        posters = {(takes.c.poster, row.poster, POSTER_EXTENSION) for row in rows if row.poster}
        for column, sha256, extension in files | posters:
            living = connection.execute(
                select(func.count()).select_from(takes).where(column == sha256, alive)
            ).scalar_one()
            if living == 0:
                self._free(StoredFile(sha256, extension))
