"""Every read of the run database; each call is one consistent snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    RowMapping,
    and_,
    bindparam,
    func,
    or_,
    select,
    text,
)

from inline_core.errors import NotFound, OutputUnavailable
from inline_core.runs.database import Database
from inline_core.runs.events import Event
from inline_core.runs.records import AssetRecord, RunBody, RunHead, RunView
from inline_core.runs.rows import (
    HEAD_COLUMNS,
    asset_from,
    body_from,
    event_from,
    head_from,
    node_from,
    take_from,
)
from inline_core.runs.states import RunStatus
from inline_core.runs.tables import (
    assets,
    node_cache,
    run_events,
    run_nodes,
    run_tags,
    run_takes,
    runs,
    server_state,
    takes,
)
from inline_core.takes.take import Take

_CHUNK = 500
_RUN = select(runs).where(runs.c.id == bindparam("run_id"))


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list: any of `statuses` (empty: all) and carrying `tag`."""

    statuses: tuple[RunStatus, ...] = ()
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class TakeOrigin:
    """A take, and the run and node it came from; `siblings` are all takes of that node, in order.

    Where the run that made the take was deleted, it is a run that reused the take.
    """

    take: Take
    node_id: str
    body: RunBody
    siblings: tuple[Take, ...]


class Queries:
    """Reads of runs, events, takes and assets.  Any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def run(self, run_id: str) -> RunView:
        """Everything about a run, with the `seq` it is true for.  Raises: NotFound."""
        return self._database.read(lambda connection: _run_view(connection, run_id))

    def body(self, run_id: str) -> RunBody:
        """What the engine executes.  Raises: NotFound."""

        def work(connection: Connection) -> RunBody:
            row = connection.execute(_RUN, {"run_id": run_id}).mappings().first()
            if row is None:
                raise _no_run(run_id)
            return body_from(row)

        return self._database.read(work)

    def graph_hash(self, run_id: str) -> str:
        """Identity of what was submitted.  Raises: NotFound."""

        def work(connection: Connection) -> str:
            found = connection.execute(
                select(runs.c.graph_hash).where(runs.c.id == run_id)
            ).scalar_one_or_none()
            if found is None:
                raise _no_run(run_id)
            return str(found)

        return self._database.read(work)

    def run_of_client(self, client_run_id: str) -> str | None:
        """The id of the run that was submitted with this `clientRunId`; None if none was."""
        return self._database.read(
            lambda connection: connection.execute(
                select(runs.c.id).where(runs.c.client_run_id == client_run_id)
            ).scalar_one_or_none()
        )

    def unfinished_ids(self, tag: str) -> list[str]:
        """The ids of running and queued runs that carry `tag`, in no order."""

        def work(connection: Connection) -> list[str]:
            query = select(runs.c.id).where(
                runs.c.status.in_([RunStatus.QUEUED.value, RunStatus.RUNNING.value]),
                *_conditions(RunFilter(tag=tag)),
            )
            return list(connection.execute(query).scalars())

        return self._database.read(work)

    def status(self, run_id: str) -> RunStatus:
        """The status of a run.  Raises: NotFound."""

        def work(connection: Connection) -> RunStatus:
            status = connection.execute(
                select(runs.c.status).where(runs.c.id == run_id)
            ).scalar_one_or_none()
            if status is None:
                raise _no_run(run_id)
            return RunStatus(status)

        return self._database.read(work)

    def unfinished(self) -> list[RunHead]:
        """Running runs, then queued ones in the order they will start, with their position."""

        def work(connection: Connection) -> list[RunHead]:
            rows = (
                connection.execute(
                    select(*HEAD_COLUMNS)
                    .where(runs.c.status.in_([RunStatus.QUEUED.value, RunStatus.RUNNING.value]))
                    .order_by(
                        runs.c.status.desc(),
                        runs.c.priority.desc(),
                        runs.c.position,
                    )
                )
                .mappings()
                .all()
            )
            tags = _tags(connection, [row["id"] for row in rows])
            heads: list[RunHead] = []
            waiting = 0
            for row in rows:
                position = None
                if row["status"] == RunStatus.QUEUED.value:
                    position = waiting
                    waiting += 1
                heads.append(head_from(row, tags.get(row["id"], ()), position))
            return heads

        return self._database.read(work)

    def page(
        self, wanted: RunFilter, *, limit: int, before: tuple[int, str] | None
    ) -> list[RunHead]:
        """Runs, newest first; one more than `limit` if there are."""

        def work(connection: Connection) -> list[RunHead]:
            query = select(*HEAD_COLUMNS).where(*_conditions(wanted))
            if before is not None:
                query = query.where(_older(runs.c.created_at_ms, runs.c.id, before))
            query = query.order_by(runs.c.created_at_ms.desc(), runs.c.id.desc())
            rows = connection.execute(query.limit(limit + 1)).mappings().all()
            tags = _tags(connection, [row["id"] for row in rows])
            return [
                head_from(row, tags.get(row["id"], ()), _queue_position(connection, row))
                for row in rows
            ]

        return self._database.read(work)

    def events_after(self, run_id: str, seq: int) -> list[Event]:
        """The events of a run after `seq`, in order."""

        def work(connection: Connection) -> list[Event]:
            rows = connection.execute(
                select(run_events)
                .where(run_events.c.run_id == run_id, run_events.c.seq > seq)
                .order_by(run_events.c.seq)
            ).mappings()
            return [event_from(row) for row in rows]

        return self._database.read(work)

    def first_seq(self, run_id: str) -> int | None:
        """The oldest `seq` still in the log of a run; None when it was pruned."""
        return self._database.read(
            lambda connection: connection.execute(
                select(func.min(run_events.c.seq)).where(run_events.c.run_id == run_id)
            ).scalar_one_or_none()
        )

    def counts(self) -> dict[str, int]:
        """How many runs there are of each status."""

        def work(connection: Connection) -> dict[str, int]:
            rows = connection.execute(
                select(runs.c.status, func.count()).group_by(runs.c.status)
            ).all()
            return {status.value: 0 for status in RunStatus} | {row[0]: row[1] for row in rows}

        return self._database.read(work)

    def last_errors(self, limit: int) -> list[RunHead]:
        """The newest failed runs."""

        def work(connection: Connection) -> list[RunHead]:
            rows = connection.execute(
                select(*HEAD_COLUMNS)
                .where(runs.c.status == RunStatus.ERROR.value)
                .order_by(runs.c.finished_at_ms.desc())
                .limit(limit)
            ).mappings()
            return [head_from(row, (), None) for row in rows]

        return self._database.read(work)

    def take(self, take_id: str) -> Take:
        """One take, deleted ones included.  Raises: NotFound."""
        return self._database.read(lambda connection: _take(connection, take_id))

    def origin(self, take_id: str) -> TakeOrigin:
        """How a take came to be.

        Raises: NotFound, or OutputUnavailable if every run that had it was deleted.
        """
        return self._database.read(lambda connection: _origin(connection, take_id))

    def takes_page(
        self, *, run_id: str | None, kind: str | None, limit: int, before: tuple[int, str] | None
    ) -> list[Take]:
        """Takes that still have their bytes, newest first; one more than `limit` if there are."""

        def work(connection: Connection) -> list[Take]:
            query = select(takes).where(takes.c.deleted_at_ms.is_(None))
            if run_id is not None:
                query = query.where(
                    takes.c.id.in_(select(run_takes.c.take_id).where(run_takes.c.run_id == run_id))
                )
            if kind is not None:
                query = query.where(takes.c.kind == kind)
            if before is not None:
                query = query.where(_older(takes.c.created_at_ms, takes.c.id, before))
            query = query.order_by(takes.c.created_at_ms.desc(), takes.c.id.desc())
            return [take_from(row) for row in connection.execute(query.limit(limit + 1)).mappings()]

        return self._database.read(work)

    def cached_takes(self, fingerprints: Sequence[str]) -> dict[str, tuple[Take, ...]]:
        """The takes that each known fingerprint gave, left out where one was deleted."""
        if not fingerprints:
            return {}
        return self._database.read(lambda connection: _cached_takes(connection, fingerprints))

    def asset(self, asset_id: str) -> AssetRecord:
        """One asset.  Raises: NotFound."""

        def work(connection: Connection) -> AssetRecord:
            row = (
                connection.execute(select(assets).where(assets.c.id == asset_id)).mappings().first()
            )
            if row is None:
                message = f"No asset {asset_id!r}."
                raise NotFound(message)
            return asset_from(row)

        return self._database.read(work)

    def assets_page(self, *, limit: int, before: tuple[int, str] | None) -> list[AssetRecord]:
        """Assets, newest first; one more than `limit` if there are."""

        def work(connection: Connection) -> list[AssetRecord]:
            query = select(assets).order_by(assets.c.created_at_ms.desc(), assets.c.id.desc())
            if before is not None:
                query = query.where(_older(assets.c.created_at_ms, assets.c.id, before))
            return [
                asset_from(row) for row in connection.execute(query.limit(limit + 1)).mappings()
            ]

        return self._database.read(work)

    def state(self, key: str) -> object:
        """A value of the server's own small state; None if it was never set."""
        return self._database.read(
            lambda connection: connection.execute(
                select(server_state.c.value).where(server_state.c.key == key)
            ).scalar_one_or_none()
        )


def _no_run(run_id: str) -> NotFound:
    return NotFound(f"No run {run_id!r}.")


def _take(connection: Connection, take_id: str) -> Take:
    row = connection.execute(select(takes).where(takes.c.id == take_id)).mappings().first()
    if row is None:
        message = f"No take {take_id!r}."
        raise NotFound(message)
    return take_from(row)


def _origin(connection: Connection, take_id: str) -> TakeOrigin:
    take = _take(connection, take_id)
    holder = connection.execute(
        select(run_takes.c.run_id, run_takes.c.node_id)
        .where(run_takes.c.take_id == take_id)
        .order_by((run_takes.c.run_id == take.run_id).desc(), run_takes.c.run_id)
    ).first()
    run_id, node_id = (take.run_id, take.node_id) if holder is None else holder
    row = connection.execute(_RUN, {"run_id": run_id}).mappings().first()
    if row is None:
        message = f"The run that made take {take_id!r} was deleted, and its graph with it."
        raise OutputUnavailable(message)
    if holder is None:
        # Of an attempt that was interrupted and made anew: no run holds it any more.
        held = select(run_takes.c.take_id)
        query = select(takes).where(
            takes.c.run_id == run_id, takes.c.node_id == node_id, takes.c.id.not_in(held)
        )
        query = query.order_by(text("takes.rowid"))
    else:
        query = (
            select(takes)
            .join(run_takes, run_takes.c.take_id == takes.c.id)
            .where(run_takes.c.run_id == run_id, run_takes.c.node_id == node_id)
            .order_by(run_takes.c.position)
        )
    siblings = tuple(take_from(sibling) for sibling in connection.execute(query).mappings())
    return TakeOrigin(take, node_id, body_from(row), siblings)


def _run_view(connection: Connection, run_id: str) -> RunView:
    row = connection.execute(_RUN, {"run_id": run_id}).mappings().first()
    if row is None:
        raise _no_run(run_id)
    nodes = connection.execute(select(run_nodes).where(run_nodes.c.run_id == run_id)).mappings()
    found = connection.execute(
        select(takes)
        .join(run_takes, run_takes.c.take_id == takes.c.id)
        .where(run_takes.c.run_id == run_id)
        .order_by(run_takes.c.position)
    ).mappings()
    seq = connection.execute(
        select(func.coalesce(func.max(run_events.c.seq), 0)).where(run_events.c.run_id == run_id)
    ).scalar_one()
    tags = _tags(connection, [run_id]).get(run_id, ())
    return RunView(
        head=head_from(row, tags, _queue_position(connection, row)),
        body=body_from(row),
        nodes={node["node_id"]: node_from(node) for node in nodes},
        takes=tuple(take_from(take) for take in found),
        warnings=tuple(row["warnings"]),
        seq=int(seq),
    )


def _queue_position(connection: Connection, row: RowMapping) -> int | None:
    """How many queued runs start before this one; None unless it is queued itself."""
    if row["status"] != RunStatus.QUEUED.value:
        return None
    ahead = or_(
        runs.c.priority > row["priority"],
        and_(runs.c.priority == row["priority"], runs.c.position < row["position"]),
    )
    return int(
        connection.execute(
            select(func.count())
            .select_from(runs)
            .where(runs.c.status == RunStatus.QUEUED.value, ahead)
        ).scalar_one()
    )


def _tags(connection: Connection, run_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for start in range(0, len(run_ids), _CHUNK):
        rows = connection.execute(
            select(run_tags.c.run_id, run_tags.c.tag)
            .where(run_tags.c.run_id.in_(run_ids[start : start + _CHUNK]))
            .order_by(run_tags.c.tag)
        ).all()
        for row in rows:
            found[row.run_id] = (*found.get(row.run_id, ()), row.tag)
    return found


def _conditions(wanted: RunFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.statuses:
        conditions.append(runs.c.status.in_([status.value for status in wanted.statuses]))
    if wanted.tag is not None:
        tagged = select(run_tags.c.run_id).where(run_tags.c.tag == wanted.tag)
        conditions.append(runs.c.id.in_(tagged))
    return conditions


def _older(at_ms: Column[int], key: Column[str], before: tuple[int, str]) -> ColumnElement[bool]:
    """Rows that come after the cursor `before` in a newest-first listing."""
    return or_(at_ms < before[0], and_(at_ms == before[0], key < before[1]))


def _cached_takes(
    connection: Connection, fingerprints: Sequence[str]
) -> dict[str, tuple[Take, ...]]:
    entries: dict[str, list[str]] = {}
    for start in range(0, len(fingerprints), _CHUNK):
        rows = connection.execute(
            select(node_cache.c.fingerprint, node_cache.c.take_ids).where(
                node_cache.c.fingerprint.in_(fingerprints[start : start + _CHUNK])
            )
        ).all()
        entries.update({row.fingerprint: row.take_ids for row in rows})
    wanted = sorted({take_id for ids in entries.values() for take_id in ids})
    alive: dict[str, Take] = {}
    for start in range(0, len(wanted), _CHUNK):
        query = select(takes).where(
            takes.c.id.in_(wanted[start : start + _CHUNK]), takes.c.deleted_at_ms.is_(None)
        )
        alive.update({row["id"]: take_from(row) for row in connection.execute(query).mappings()})
    return {
        fingerprint: tuple(alive[take_id] for take_id in ids)
        for fingerprint, ids in entries.items()
        if all(take_id in alive for take_id in ids)
    }
