"""Every change to runs: each is one transaction together with the events that tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, bindparam, case, delete, func, insert, or_, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from inline_core.errors import Conflict, NotFound, QueueFull
from inline_core.runs.database import Database, Transaction
from inline_core.runs.events import EventType
from inline_core.runs.records import NewRun, RunError, now_ms
from inline_core.runs.rows import run_values, take_values
from inline_core.runs.states import NodeState, RunStatus
from inline_core.runs.tables import node_cache, run_nodes, run_tags, run_takes, runs, takes
from inline_core.takes.take import Take

_UNFINISHED = (RunStatus.QUEUED.value, RunStatus.RUNNING.value)
_RETRY_AFTER_S = 5

# Built once: making a statement costs more than running it, and these run for every run.
_NEXT_POSITION = select(func.coalesce(func.max(runs.c.position), 0) + 1)
_COUNT_UNFINISHED = select(func.count()).select_from(runs).where(runs.c.status.in_(_UNFINISHED))
_STATUS = select(runs.c.status).where(runs.c.id == bindparam("run_id"))
_RUN = runs.c.id == bindparam("run_id")
_INSERT_RUN = insert(runs)
_SUSPECT = select(runs.c.id).where(runs.c.status == RunStatus.RUNNING.value, runs.c.attempt > 1)
_NEXT = (
    select(runs.c.id, runs.c.attempt)
    .where(
        runs.c.status == RunStatus.QUEUED.value,
        or_(runs.c.attempt == 0, ~_SUSPECT.exists()),
    )
    .order_by(runs.c.priority.desc(), runs.c.position)
    .limit(1)
)
_START = (
    update(runs)
    .where(_RUN)
    .values(
        status=RunStatus.RUNNING.value,
        attempt=runs.c.attempt + 1,
        nodes_complete=0,
        started_at_ms=bindparam("at_ms"),
    )
)
_FORGET_NODES = delete(run_nodes).where(run_nodes.c.run_id == bindparam("of_run"))
_COMPLETE = (
    update(runs).where(_RUN).values(nodes_complete=runs.c.nodes_complete + bindparam("more"))
)
_END_NODES = (
    update(run_nodes)
    .where(
        run_nodes.c.run_id == bindparam("of_run"),
        run_nodes.c.state == NodeState.RUNNING.value,
    )
    .values(state=NodeState.QUEUED.value)
)
_UPSERT_NODES = upsert(run_nodes)
_UPSERT_NODES = _UPSERT_NODES.on_conflict_do_update(
    index_elements=["run_id", "node_id"],
    set_={
        name: _UPSERT_NODES.excluded[name] for name in ("state", "started_at_ms", "finished_at_ms")
    },
)


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a submission; `replayed` when the `clientRunId` was known already."""

    run_id: str
    status: RunStatus
    replayed: bool


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a start found: runs queued again, and runs whose attempts were used up."""

    requeued: tuple[str, ...]
    interrupted: tuple[str, ...]
    queued: int


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """How a node ended: freshly `done`, or `cached` with takes of an earlier run.

    `announced` tells that its start is in the log already; `text` is what it shows, if that is all
    it is for.
    """

    node_id: str
    state: NodeState
    announced: bool = False
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    takes: tuple[Take, ...] = ()
    fingerprint: str | None = None
    text: str | None = None


class Journal:
    """Writes of the run lifecycle.  Methods queue and give futures; any thread."""

    def __init__(self, database: Database, *, max_queue: int, max_attempts: int) -> None:
        self._database = database
        self._max_queue = max_queue
        self._max_attempts = max_attempts

    def submit(self, new_runs: Sequence[NewRun]) -> Future[list[Submitted]]:
        """Store runs, all or none.  The future raises Conflict or QueueFull."""

        def work(transaction: Transaction) -> list[Submitted]:
            return self._submit(transaction, new_runs)

        return self._database.write(work)

    def _submit(self, transaction: Transaction, new_runs: Sequence[NewRun]) -> list[Submitted]:
        connection = transaction.connection
        results: list[Submitted] = []
        waiting: int | None = None
        for new in new_runs:
            replay = _replay_of(transaction, new)
            if replay is not None:
                results.append(replay)
                continue
            if waiting is None:
                waiting = _count_unfinished(transaction)
            waiting += 1
            if waiting > self._max_queue:
                message = (
                    f"The queue is full: {self._max_queue} unfinished runs (setting "
                    "INLINE_MAX_QUEUE). Try again when some are done."
                )
                raise QueueFull(message, details={"retryAfterS": _RETRY_AFTER_S})
            at_ms = now_ms()
            position = connection.execute(_NEXT_POSITION).scalar_one()
            connection.execute(_INSERT_RUN, run_values(new, position, at_ms))
            if new.tags:
                connection.execute(
                    insert(run_tags), [{"run_id": new.id, "tag": tag} for tag in new.tags]
                )
            transaction.emit(new.id, EventType.QUEUED, {"attempt": 0})
            results.append(Submitted(new.id, RunStatus.QUEUED, replayed=False))
        return results

    def claim(self) -> Future[str | None]:
        """Start the next queued run: highest priority, then first come; None if none waits."""
        return self._database.write(_claim)

    def nodes_changed(
        self, run_id: str, outcomes: Sequence[NodeOutcome], started: str | None = None
    ) -> Future[bool]:
        """Nodes finished (states, takes, cache entries) and the next one, `started`, begins.

        One transaction.  False, and nothing stored, if the run is not running any more.
        """

        def work(transaction: Transaction) -> bool:
            if _status(transaction, run_id) is not RunStatus.RUNNING:
                return False
            _store_outcomes(transaction, run_id, outcomes)
            if started is not None:
                _start_node(transaction, run_id, started)
            return True

        return self._database.write(work)

    def warn(self, run_id: str, warnings: Sequence[dict[str, Any]]) -> Future[None]:
        """Attach warnings that came up while running."""

        def work(transaction: Transaction) -> None:
            known = transaction.connection.execute(
                select(runs.c.warnings).where(runs.c.id == run_id)
            ).scalar_one_or_none()
            if known is not None:
                fresh = [entry for entry in warnings if entry not in known]
                transaction.connection.execute(
                    update(runs).where(runs.c.id == run_id).values(warnings=[*known, *fresh])
                )

        return self._database.write(work)

    def finish(self, run_id: str) -> Future[bool]:
        """The run is done.  False if it was settled otherwise in the meantime."""

        def work(transaction: Transaction) -> bool:
            if not _settle(transaction, run_id, RunStatus.DONE):
                return False
            transaction.emit(run_id, EventType.RUN_DONE, {})
            return True

        return self._database.write(work)

    def fail(self, run_id: str, error: RunError) -> Future[bool]:
        """The run failed, at `error.node_id` where that is known."""

        def work(transaction: Transaction) -> bool:
            return _fail(transaction, run_id, error)

        return self._database.write(work)

    def cancelled(self, run_id: str) -> Future[bool]:
        """The run, queued or running, ends as cancelled; False if it was already final."""

        def work(transaction: Transaction) -> bool:
            return _cancel(transaction, run_id)

        return self._database.write(work)

    def requeue(self, run_id: str) -> Future[bool]:
        """Put a running run back in the queue, the attempt not counted (a clean stop)."""

        def work(transaction: Transaction) -> bool:
            if _status(transaction, run_id) is not RunStatus.RUNNING:
                return False
            _put_back(transaction, run_id, attempt=runs.c.attempt - 1)
            return True

        return self._database.write(work)

    def cancel_if_queued(self, run_id: str) -> Future[RunStatus]:
        """Settle a queued run as cancelled at once; gives the status the run had before.

        The future raises NotFound.
        """

        def work(transaction: Transaction) -> RunStatus:
            status = _status(transaction, run_id)
            if status is RunStatus.QUEUED:
                _cancel(transaction, run_id)
            return status

        return self._database.write(work)

    def recover(self) -> Future[Recovered]:
        """At start: runs found running are queued again, or fail if their attempts are used up."""

        def work(transaction: Transaction) -> Recovered:
            return _recover(transaction, self._max_attempts)

        return self._database.write(work)

    def reorder(self, run_ids: Sequence[str]) -> Future[None]:
        """Move queued runs to the front, in this order.  Raises: NotFound, Conflict."""

        def work(transaction: Transaction) -> None:
            _reorder(transaction, run_ids)

        return self._database.write(work)

    def set_priority(self, run_id: str, priority: int) -> Future[None]:
        """Change the priority of a queued run.  Raises: NotFound, Conflict."""

        def work(transaction: Transaction) -> None:
            _require_queued(transaction, run_id)
            transaction.connection.execute(
                update(runs).where(runs.c.id == run_id).values(priority=priority)
            )

        return self._database.write(work)


def _replay_of(transaction: Transaction, new: NewRun) -> Submitted | None:
    if new.client_run_id is None:
        return None
    row = transaction.connection.execute(
        select(runs.c.id, runs.c.status, runs.c.graph_hash).where(
            runs.c.client_run_id == new.client_run_id
        )
    ).one_or_none()
    if row is None:
        return None
    if row.graph_hash != new.graph_hash:
        message = f"clientRunId {new.client_run_id!r} was reused with a different graph."
        raise Conflict(message, details={"runId": row.id})
    return Submitted(row.id, RunStatus(row.status), replayed=True)


def _count_unfinished(transaction: Transaction) -> int:
    return int(transaction.connection.execute(_COUNT_UNFINISHED).scalar_one())


def _claim(transaction: Transaction) -> str | None:
    """The next run.  Of runs that were interrupted before, at most one runs at a time.

    One of them may have brought the server down, and would take the others with it again.
    """
    connection = transaction.connection
    row = connection.execute(_NEXT).one_or_none()
    if row is None:
        return None
    connection.execute(_START, {"run_id": row.id, "at_ms": now_ms()})
    if row.attempt:
        connection.execute(_FORGET_NODES, {"of_run": row.id})
    transaction.emit(row.id, EventType.STARTED, {"attempt": row.attempt + 1})
    return str(row.id)


def _status(transaction: Transaction, run_id: str) -> RunStatus:
    status = transaction.connection.execute(_STATUS, {"run_id": run_id}).scalar_one_or_none()
    if status is None:
        message = f"No run {run_id!r}."
        raise NotFound(message)
    return RunStatus(status)


def _set_node(
    transaction: Transaction, run_id: str, node_id: str, state: NodeState, **times: int
) -> None:
    values = {"state": state.value, **times}
    statement = upsert(run_nodes).values(run_id=run_id, node_id=node_id, **values)
    transaction.connection.execute(
        statement.on_conflict_do_update(index_elements=["run_id", "node_id"], set_=values)
    )


def _start_node(transaction: Transaction, run_id: str, node_id: str) -> None:
    _set_node(transaction, run_id, node_id, NodeState.RUNNING, started_at_ms=now_ms())
    transaction.emit(run_id, EventType.NODE_STARTED, {"nodeId": node_id})


def _store_outcomes(transaction: Transaction, run_id: str, outcomes: Sequence[NodeOutcome]) -> None:
    if not outcomes:
        return
    connection = transaction.connection
    rows = [
        {
            "run_id": run_id,
            "node_id": outcome.node_id,
            "state": outcome.state.value,
            "started_at_ms": outcome.started_at_ms,
            "finished_at_ms": outcome.finished_at_ms,
        }
        for outcome in outcomes
    ]
    connection.execute(_UPSERT_NODES, rows)
    for outcome in outcomes:
        if outcome.state is NodeState.DONE and not outcome.announced:
            transaction.emit(run_id, EventType.NODE_STARTED, {"nodeId": outcome.node_id})
        if outcome.takes:
            _store_takes(transaction, run_id, outcome)
        payload = {
            "nodeId": outcome.node_id,
            "cached": outcome.state is NodeState.CACHED,
            "takes": [take.id for take in outcome.takes],
        }
        if outcome.text is not None:
            payload["text"] = outcome.text
        transaction.emit(run_id, EventType.NODE_DONE, payload)
    connection.execute(_COMPLETE, {"run_id": run_id, "more": len(outcomes)})


def _store_takes(transaction: Transaction, run_id: str, outcome: NodeOutcome) -> None:
    connection = transaction.connection
    if outcome.state is NodeState.DONE:
        connection.execute(insert(takes), [take_values(take) for take in outcome.takes])
    first = connection.execute(
        select(func.count()).select_from(run_takes).where(run_takes.c.run_id == run_id)
    ).scalar_one()
    connection.execute(
        upsert(run_takes).on_conflict_do_nothing(),
        [
            {
                "run_id": run_id,
                "take_id": take.id,
                "node_id": outcome.node_id,
                "position": first + index,
            }
            for index, take in enumerate(outcome.takes)
        ],
    )
    if outcome.fingerprint is not None and outcome.state is NodeState.DONE:
        entry = {"take_ids": [take.id for take in outcome.takes], "created_at_ms": now_ms()}
        statement = upsert(node_cache).values(fingerprint=outcome.fingerprint, **entry)
        connection.execute(
            statement.on_conflict_do_update(index_elements=["fingerprint"], set_=entry)
        )


def _settle(transaction: Transaction, run_id: str, status: RunStatus, **values: Any) -> bool:
    """Move a run to a final status unless it has one; a node still running goes back to queued."""
    result = transaction.connection.execute(
        update(runs)
        .where(runs.c.id == run_id, runs.c.status.in_(_UNFINISHED))
        .values(status=status.value, finished_at_ms=now_ms(), **values)
    )
    if result.rowcount == 0:
        return False
    transaction.connection.execute(_END_NODES, {"of_run": run_id})
    return True


def _fail(transaction: Transaction, run_id: str, error: RunError) -> bool:
    settled = _settle(
        transaction,
        run_id,
        RunStatus.ERROR,
        error_code=error.code,
        error_message=error.message,
        error_node_id=error.node_id,
        error_details=dict(error.details),
    )
    if not settled:
        return False
    if error.node_id is not None:
        _set_node(transaction, run_id, error.node_id, NodeState.ERROR, finished_at_ms=now_ms())
    payload = {"message": error.message, "nodeId": error.node_id, "code": error.code}
    transaction.emit(run_id, EventType.ERROR, payload)
    return True


def _cancel(transaction: Transaction, run_id: str) -> bool:
    if not _settle(transaction, run_id, RunStatus.CANCELLED):
        return False
    transaction.emit(run_id, EventType.CANCELLED, {})
    return True


def _recover(transaction: Transaction, max_attempts: int) -> Recovered:
    connection = transaction.connection
    rows = connection.execute(
        select(runs.c.id, runs.c.attempt)
        .where(runs.c.status == RunStatus.RUNNING.value)
        .order_by(runs.c.position)
    ).all()
    requeued: list[str] = []
    interrupted: list[str] = []
    for row in rows:
        if row.attempt >= max_attempts:
            message = (
                f"The server stopped while this run was running, {row.attempt} times; it is not "
                "tried again by itself (setting INLINE_MAX_ATTEMPTS). Retry it by hand."
            )
            _fail(transaction, row.id, RunError("interrupted", message))
            interrupted.append(row.id)
            continue
        _put_back(transaction, row.id, attempt=row.attempt)
        requeued.append(row.id)
    queued = connection.execute(
        select(func.count()).select_from(runs).where(runs.c.status == RunStatus.QUEUED.value)
    ).scalar_one()
    return Recovered(tuple(requeued), tuple(interrupted), int(queued))


def _put_back(transaction: Transaction, run_id: str, *, attempt: ColumnElement[int] | int) -> None:
    connection = transaction.connection
    connection.execute(
        update(runs)
        .where(runs.c.id == run_id)
        .values(
            status=RunStatus.QUEUED.value, started_at_ms=None, nodes_complete=0, attempt=attempt
        )
    )
    connection.execute(delete(run_nodes).where(run_nodes.c.run_id == run_id))
    connection.execute(delete(run_takes).where(run_takes.c.run_id == run_id))
    count = connection.execute(select(runs.c.attempt).where(runs.c.id == run_id)).scalar_one()
    transaction.emit(run_id, EventType.QUEUED, {"attempt": count, "recovered": True})


def _require_queued(transaction: Transaction, run_id: str) -> None:
    status = _status(transaction, run_id)
    if status is not RunStatus.QUEUED:
        message = f"Run {run_id!r} is {status.value}; only queued runs can be moved."
        raise Conflict(message, details={"status": status.value})


def _reorder(transaction: Transaction, run_ids: Sequence[str]) -> None:
    connection = transaction.connection
    for run_id in run_ids:
        _require_queued(transaction, run_id)
    queued = runs.c.status == RunStatus.QUEUED.value
    first, highest = connection.execute(
        select(func.min(runs.c.position), func.max(runs.c.priority)).where(queued)
    ).one()
    if not run_ids:
        return
    order = {run_id: first - len(run_ids) + index for index, run_id in enumerate(run_ids)}
    connection.execute(
        update(runs)
        .where(runs.c.id.in_(run_ids))
        .values(position=case(order, value=runs.c.id), priority=highest)
    )
